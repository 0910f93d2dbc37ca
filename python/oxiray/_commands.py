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


