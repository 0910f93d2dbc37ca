"""Commands of `oxiray` that Python runs, since they need a program that is connected: each takes its arguments."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator

from oxiray import _session


@contextlib.contextmanager
def _connected(address: str) -> Iterator[None]:
    """Connects to a cluster that runs, without a word of it."""
    _session.init(address=address, logging_level="ERROR", log_to_driver=False)
    try:
        yield
    finally:
        _session.shutdown()


def _parser(command: str, words: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"oxiray {command}", description=words)
    parser.add_argument("--address", default="auto", help="the cluster's address; the current one where it is left out")
    return parser


def timeline(arguments: list[str]) -> int:
    """Writes what ran when to a file."""
    from oxiray import timeline as write

    parser = _parser("timeline", "Writes what ran when, for a viewer of Chrome's traces.")
    parser.add_argument("--filename", help="the file; timeline-<time>.json in this folder where it is left out")
    given = parser.parse_args(arguments)
    with _connected(given.address):
        filename = given.filename or _name_of_timeline()
        write(filename)
    print(f"Trace file written to {filename}.")
    return 0


def _name_of_timeline() -> str:
    import time

    return f"timeline-{time.strftime('%Y-%m-%d_%H-%M-%S')}.json"


def kill_actor(arguments: list[str]) -> int:
    """Ends a named actor; its status is 1 where there is none of that name."""
    from oxiray import get_actor, kill

    parser = _parser("kill-actor", "Ends a named actor.")
    parser.add_argument("actor", nargs="?", help="the actor's name")
    parser.add_argument("--name", help="the actor's name, as an option")
    parser.add_argument("--namespace", help="where it has that name")
    parser.add_argument("--force", action="store_true", help="kills it at once, rather than after the calls it has")
    parser.add_argument("--no-restart", action="store_true", help="with --force: it is not made again")
    given = parser.parse_args(arguments)
    name = given.name or given.actor
    if not name:
        parser.error("name the actor")
    with _connected(given.address):
        try:
            actor = get_actor(name, namespace=given.namespace)
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        if given.force:
            kill(actor, no_restart=given.no_restart)
        else:
            actor.__ray_terminate__.remote()
    print(f"{'Killed' if given.force else 'Asked to end:'} actor {name}.")
    return 0


#: What `logs` shows the output of: the options that name it, and what each is called in `get_log`.
_LOGS_OF = {
    "actor": (("id", "actor_id"), ("pid", "pid")),
    "job": (("id", "submission_id"),),
    "task": (("id", "task_id"),),
    "worker": (("pid", "pid"),),
}


def logs(arguments: list[str]) -> int:
    """Lists the files of logs that fit a pattern, or prints the one that does, or what an actor, job, task or worker printed."""
    if arguments and arguments[0] in _LOGS_OF:
        return _logs_of(arguments[0], arguments[1:])
    return _logs_of_files(arguments[1:] if arguments[:1] == ["cluster"] else arguments)


def _logs_parser(command: str, words: str) -> argparse.ArgumentParser:
    parser = _parser(command, words)
    parser.add_argument("--tail", type=int, default=1000, help="how many of the last lines are printed; -1 for all")
    parser.add_argument("--follow", "-f", action="store_true", help="goes on printing what is added")
    parser.add_argument("--interval", type=float, dest="_interval", metavar="SECONDS", help="with --follow: between two looks")
    parser.add_argument("--encoding", default="utf-8", help="how the bytes of the file are letters")
    parser.add_argument("--encoding-errors", default="strict", dest="errors", help="what becomes of bytes that are none")
    parser.add_argument("--node-id", help="the node whose files are meant; that of this machine where it is left out")
    parser.add_argument("--node-ip", "-ip", help="the address of that node")
    return parser


def _logs_of(kind: str, arguments: list[str]) -> int:
    """Prints what one process printed; the status is 1 where no file is known."""
    from oxiray.util.state.exception import RayStateApiException

    names = _LOGS_OF[kind]
    parser = _logs_parser(f"logs {kind}", f"Prints the output of one {kind}.")
    one_of = parser.add_mutually_exclusive_group(required=True)
    for name, keyword in names:
        one_of.add_argument(f"--{name}", dest=keyword, type=int if name == "pid" else str, help=f"which {kind}, by its {name}")
    parser.add_argument("--err", action="store_const", const="err", default="out", dest="suffix", help="its standard error")
    if kind == "task":
        parser.add_argument("--attempt-number", "-a", type=int, default=0, help="which attempt of the task, from 0 on")
    given = parser.parse_args(arguments)
    with _connected(given.address):
        try:
            return _print_log(given)
        except RayStateApiException as error:
            print(f"error: {error}", file=sys.stderr)
            return 1


def _logs_of_files(arguments: list[str]) -> int:
    from oxiray.util.state import list_logs

    parser = _logs_parser("logs", "Lists files of logs of this machine's node, or prints the one that is named.")
    parser.add_argument("glob", nargs="?", default="*", help="a file's name, or a pattern; every file where it is left out")
    given = parser.parse_args(arguments)
    node = {"node_id": given.node_id, "node_ip": given.node_ip}
    with _connected(given.address):
        found = [name for names in list_logs(glob_filter=given.glob, **node).values() for name in names]
        if found == [given.glob]:
            given.filename = given.__dict__.pop("glob")
            return _print_log(given)
    print("\n".join(found) if found else f"no file of logs fits {given.glob!r}")
    return 0 if found else 1


def _print_log(given: argparse.Namespace) -> int:
    """Prints the file that the options name, which are called as the arguments of `get_log` are."""
    from oxiray.util.state import get_log

    named = {name: value for name, value in vars(given).items() if name != "address"}
    for piece in get_log(**named):
        sys.stdout.write(piece)
        sys.stdout.flush()
    return 0
