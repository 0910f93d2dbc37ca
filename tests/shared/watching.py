"""How tests wait for what other processes do, and look at whether those live."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

#: How long to leave the processor to the others between two looks, in seconds.
_PAUSE = 0.005


def wait_until(holds: Callable[[], object], timeout: float = 60.0) -> None:
    """Returns once `holds()` is true; fails after `timeout` seconds."""
    end = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < end, "it did not come to hold in time"
        time.sleep(_PAUSE)


def written(path: Path, timeout: float = 60.0) -> str:
    """What another process writes into a file at one go: a file is there before its text is."""
    wait_until(lambda: path.exists() and path.stat().st_size > 0, timeout)
    return path.read_text()


def processes_of(variable: str) -> list[int]:
    """Every process that was started with this variable, as `NAME=value`, the asking one left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if variable.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def alive(pid: int) -> bool:
    """Whether a process lives: one that only waits to be reaped does not, unless threads of it are still ending.

    Those have its files open, and its locks.
    """
    try:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
            return fields[0] != "Z" or int(fields[17]) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False
