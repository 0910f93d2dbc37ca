"""How tests wait for what other processes do, and look at whether those live."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

#: How long to leave the processor to the others between two looks, in seconds.
_PAUSE = 0.005


def wait_until(holds: Callable[[], object], timeout: float = 60.0) -> None:
    """Returns once `holds()` is true; fails after `timeout` seconds."""
    end = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < end, "it did not come to hold in time"
        time.sleep(_PAUSE)


def stop(pid: int) -> None:
    """The process is stopped once this returns: `kill` returns before the threads of a busy machine have heard of it."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(_state(entry) in "TZX" for entry in Path(f"/proc/{pid}/task").iterdir()))


def _state(thread: Path) -> str:
    """The letter of a thread's state; `X` for one that has ended."""
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The process is stopped meanwhile, and goes on afterwards."""
    try:
        stop(pid)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


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
