"""A driver of the load: takes kinds of work at random, several at once, until it is told to stop or is killed.

What it was promised (kept values, detached actors) it writes down, and what others of its name were promised it looks at.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import load
from oxiray._cli import native_binary
from ticket import Ledger, Ticket, lines_of

import ray
from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put
from ray.util.state import list_actors

NAMESPACE = "chaos"
#: How many values and detached actors each name of a driver has.
KEPT, KEEPERS = 20, 2
#: How long a cluster may be without a head, in seconds.
HEAD_ABSENCE_S = 20.0


def connect(patience_s: float) -> None:
    """Joins the cluster, once it has a head."""
    until = time.monotonic() + patience_s
    while True:
        try:
            ray.init(address="auto", log_to_driver=False, namespace=NAMESPACE)
            return
        except ConnectionError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


class Promises:
    """What the drivers of one name were promised, and hold the cluster to."""

    def __init__(self, name: str, folder: Path, ledger: Ledger) -> None:
        self._name, self._ledger = name, ledger
        #: For each key the last value that was acknowledged, and those that were sent since.
        self.kept: dict[str, list[str]] = {}
        self.keepers: set[str] = set()
        for path in sorted(folder.glob(f"ledger-{name}-*")):
            for line in lines_of(path):
                self._read(line)

    def _read(self, line: dict[str, str]) -> None:
        if line["what"] == "keeping":
            self.kept.setdefault(line["key"], [""]).append(line["value"])
        elif line["what"] == "kept":
            self.kept[line["key"]] = [line["value"]]
        elif line["what"] == "keeper":
            self.keepers.add(line["key"])

    def keep(self, ticket: Ticket) -> Iterator[None]:
        """Has a value kept, and looks at another."""
        key, value = f"{self._name}-{ticket.chance.randrange(KEPT)}", ticket.name
        self.check_kept(key)
        self._note("keeping", key, value)
        _internal_kv_put(key.encode(), value.encode(), overwrite=True)
        self._note("kept", key, value)
        yield
        self.check_kept(key)

    def _note(self, what: str, key: str, value: str) -> None:
        self._ledger.write(what, key=key, value=value)
        self._read({"what": what, "key": key, "value": value})

    def check_kept(self, key: str) -> None:
        """A value that was acknowledged is there, unless a later one is."""
        if key in self.kept:
            found = (_internal_kv_get(key.encode()) or b"").decode()
            if found not in self.kept[key]:
                raise load.Wrong(f"the kept value of {key} is {found!r}, and must be one of {self.kept[key]}")

    def use_keeper(self, ticket: Ticket) -> Iterator[None]:
        """Calls an actor that outlives its drivers; one that was promised must be there."""
        key = f"keeper-{self._name}-{ticket.chance.randrange(KEEPERS)}"
        keeper = self.find_keeper(key)
        value = ticket.number()
        answer = keeper.step.remote(0, value)
        yield
        load.expect("what a detached actor returns", load.get(answer)[2], load.mixed(value))
        self._ledger.write("keeper", key=key)
        self.keepers.add(key)

    def find_keeper(self, key: str) -> load.Account:
        """By its name where it was promised, and else made now."""
        if key in self.keepers:
            try:
                return ray.get_actor(key, namespace=NAMESPACE)
            except ValueError as error:
                known = list_actors(filters=[("name", "=", key)], detail=True)
                raise load.Wrong(f"{error}. What is known of actors with this name: {known}") from None
        lasting = {"name": key, "lifetime": "detached", "namespace": NAMESPACE, "get_if_exists": True}
        return load.Account.options(max_restarts=-1, max_task_retries=-1, **lasting).remote(key)


def state() -> str:
    """What the cluster says of itself, for whoever looks into something that hangs."""
    told = ""
    for words in (["status"], ["list", "tasks"], ["list", "actors"], ["list", "placement-groups"], ["memory"]):
        done = subprocess.run([str(native_binary()), *words], capture_output=True, text=True, timeout=60, check=False)
        told += f"\n$ oxiray {' '.join(words)}\n{done.stdout}{done.stderr}"
    return told


class Driver:
    """One process of the load."""

    def __init__(self, name: str, number: int, folder: Path, seed: int, heads_die: bool) -> None:
        self._name, self._number, self._heads_die, self._seed = name, number, heads_die, seed
        self._chance = random.Random(f"{seed} {name} {number}")
        self._ledger = Ledger(folder / f"ledger-{name}-{number:04}")
        promises = Promises(name, folder, self._ledger)
        self._kinds = [*load.KINDS, promises.keep, promises.keep, promises.use_keeper]
        self._pieces = 0

    def work_several(self) -> None:
        """Starts some pieces of work, and then looks at each."""
        running = []
        for _ in range(self._chance.randrange(2, 6)):
            kind = self._chance.choice(self._kinds)
            self._pieces += 1
            name = f"{self._name}-{self._number}-{self._pieces}-{kind.__name__}"
            ticket = Ticket(name, random.Random(f"{self._seed} {name}"), self._heads_die)
            self._ledger.write("begin", piece=name)
            running.append((ticket, kind(ticket)))
        alive = [(ticket, work) for ticket, work in running if self._goes_on(ticket, work)]
        for ticket, work in alive:
            while self._goes_on(ticket, work):
                pass

    def _goes_on(self, ticket: Ticket, work: Iterator[None]) -> bool:
        try:
            next(work)
            return True
        except StopIteration:
            self._ledger.write("end", piece=ticket.name, legal=ticket.legal)
        except Exception as error:
            told = "".join(traceback.format_exception(error))
            if isinstance(error, ray.exceptions.GetTimeoutError):
                told += state()
            self._ledger.write("fault", piece=ticket.name, error=f"{type(error).__name__}: {error}", told=told[-20_000:])
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--name", required=True)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--heads-die", action="store_true")
    given = parser.parse_args()
    connect(HEAD_ABSENCE_S if given.heads_die else 0)
    driver = Driver(given.name, given.number, given.folder, given.seed, given.heads_die)
    while not (given.folder / "stop").exists():
        driver.work_several()
    with contextlib.suppress(BrokenPipeError):
        ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
