"""Commands of `oxiray` that Python runs, since they need a program that is connected: each takes its arguments."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import Any

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
    parser.add_argument("--address", default="auto", help="the cluster's address; the default is the current cluster")
    return parser


def timeline(arguments: list[str]) -> int:
    """Writes what ran when to a file."""
    from oxiray import timeline as write

    parser = _parser("timeline", "Writes when each call ran to a file, for a viewer of Chrome traces.")
    parser.add_argument("--filename", help="the file; the default is timeline-<time>.json in the current folder")
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
    parser.add_argument("--namespace", help="the namespace of the name")
    parser.add_argument("--force", action="store_true", help="kills the actor at once, instead of after the calls that it has")
    parser.add_argument("--no-restart", action="store_true", help="with --force: the actor is not restarted")
    given = parser.parse_args(arguments)
    name = given.name or given.actor
    if not name:
        parser.error("which actor? give its name: `oxiray list actors` shows the names")
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




def debug(arguments: list[str]) -> int:
    """Lists processes that stopped at a breakpoint, and debugs one; its status is 1 where there is none of that name."""
    from oxiray import _debugger

    parser = _parser("debug", "Lists processes that stopped at a breakpoint, and debugs one with the commands of pdb.")
    parser.add_argument("session", nargs="?", help="the session, or its first digits; the default is to list them all and to ask")
    parser.add_argument("--json", action="store_true", help="prints the list as JSON")
    given = parser.parse_args(arguments)
    with _connected(given.address):
        found = _debugger.sessions()
        if given.json:
            import json

            print(json.dumps(found))
            return 0
        if not given.session:
            _print_sessions(found)
            if not found or not sys.stdin.isatty():
                return 0
        try:
            session = given.session or (found[0]["session"] if len(found) == 1 else input("Session (Enter: none): ").strip())
        except (EOFError, KeyboardInterrupt):
            return 0
        if not session:
            return 0
        named = [facts for facts in found if facts["session"].startswith(session)]
        if len(named) != 1:
            which = "several sessions begin so" if named else "no process waits there"
            print(f"error: {session}: {which}; `oxiray debug` lists those that there are", file=sys.stderr)
            return 1
        return _debugger.attach(named[0]["session"])


def _print_sessions(found: list[dict[str, Any]]) -> None:
    import time

    if not found:
        print("No process has stopped. `breakpoint()` in a task or an actor stops it, and RAY_DEBUG_POST_MORTEM=1 what fails.")
    for facts in found:
        waited = f"{time.time() - facts['since']:.0f} s ago"
        what = facts["reason"] or "at a breakpoint"
        print(f"{facts['session']}  {facts['name']}  pid {facts['pid']} on node {facts['node_id'][:12]}")
        print(f"    {what}, {facts['place']}, {waited}{', a terminal is attached' if facts['attached'] else ''}")
