"""What the processes of the load write of themselves, each into a file of its own, and what can be read in it afterwards.

A line is `moment what key rest`, the moment in nanoseconds of the machine's monotonic clock. Nothing of it goes through
the runtime, so that what is counted and held against it does not come from it.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

#: Where the diaries are.
FOLDER = "OXIRAY_CHAOS_DIARIES"
#: Which host a daemon and its workers are on.
HOST = "OXIRAY_CHAOS_HOST"
#: A whole device.
UNITS = 10_000

_descriptor: dict[int, int] = {}


def say(what: str, key: str, rest: str = "") -> None:
    """Writes a line into this process's diary."""
    own = _descriptor.get(os.getpid())
    if own is None:
        path = f"{os.environ[FOLDER]}/{os.getpid()}-{time.monotonic_ns()}"
        own = _descriptor[os.getpid()] = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.write(own, f"{time.clock_gettime_ns(time.CLOCK_MONOTONIC)} {what} {key} {rest}\n".encode())


def say_what_is_held(key: str, share: float, ids: list[int] | list[str]) -> None:
    """Writes which devices this process was given. Raises where the vendor's variable says something else."""
    told, shown = ",".join(map(str, ids)), os.environ.get("CUDA_VISIBLE_DEVICES")
    if told != shown or len(ids) != max(1, int(share)):
        raise AssertionError(f"{key} asked for {share}, is told {told}, and shown {shown}")
    units = UNITS if share >= 1 else round(share * UNITS)
    say("held", key, f"{units} {' '.join(f'{os.environ[HOST]}/{one}' for one in ids)}")


@dataclass(frozen=True)
class Held:
    """One process's hold on one device, from its first to its last sign of it."""

    device: str
    units: int
    began_ns: int
    ended_ns: int
    who: str


@dataclass
class Read:
    """What all diaries of a run say."""

    held: list[Held] = field(default_factory=list)
    #: How often each piece of work was begun.
    begun: Counter[str] = field(default_factory=Counter)
    #: How often it was begun again after it had been done once.
    again: Counter[str] = field(default_factory=Counter)
    #: How often each actor was made.
    made: Counter[str] = field(default_factory=Counter)


def read(folder: Path) -> Read:
    """Reads all diaries. A last line that a kill cut short is passed over."""
    found, began, done = Read(), [], {}
    for path in folder.iterdir():
        lines = [line.split() for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        found.held += _holds(path.name, lines)
        for moment, what, key, *_ in lines:
            if what == "began":
                began.append((int(moment), key))
            elif what == "done":
                done[key] = min(int(moment), done.get(key, int(moment)))
            elif what == "made":
                found.made[key] += 1
    for moment, key in began:
        found.begun[key] += 1
        found.again[key] += moment > done.get(key, moment)
    return found


def _holds(name: str, lines: list[list[str]]) -> list[Held]:
    """Each hold lasts until it is given up, or until the last line of the process that had it."""
    holds: list[Held] = []
    for number, (moment, what, key, *rest) in enumerate(lines):
        if what == "held":
            ends = [int(later[0]) for later in lines[number:] if later[1] == "released" and later[2] == key]
            end = ends[0] if ends else int(lines[-1][0])
            holds += [Held(device, int(rest[0]), int(moment), end, f"{key} in {name}") for device in rest[1:]]
    return holds


def overlaps(held: Iterable[Held]) -> list[str]:
    """Devices of which more than one whole was held at a moment, each once, and by whom."""
    by_device: dict[str, list[Held]] = defaultdict(list)
    for one in held:
        by_device[one.device].append(one)
    found = []
    for device, holds in sorted(by_device.items()):
        for one in sorted(holds, key=lambda hold: hold.began_ns):
            with_it = [other for other in holds if other.began_ns <= one.began_ns < other.ended_ns]
            units = sum(other.units for other in with_it)
            if units > UNITS:
                found.append(f"{units}/{UNITS} of device {device} held at {one.began_ns} ns by {with_it}")
                break
    return found
