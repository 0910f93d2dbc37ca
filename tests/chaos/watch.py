"""What daemons look like from outside: whether one ended that nobody ended, and what each has of memory and descriptors.

- A daemon ends when it is killed by this program, or where it is a member that found no head, which it says last. A member
  whose lease is over, and that is too slow to end its work on a busy machine, is killed by the kernel: the process that was
  started for it then starts another daemon, and lives on.
- Its memory and its descriptors stay below bounds that do not depend on how long the run is.
"""

from __future__ import annotations

import contextlib
import re
import signal
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from daemons import Cluster

#: How often daemons are looked at, in seconds.
PERIOD_S = 0.5
#: The most that a daemon's resident memory may be: ten times what one has in a run in which nobody means harm, so that
#: what waits for peers that read slowly has room. What lies in the store is not the daemon's: it maps none of it for long.
RESIDENT_BYTES_MAX = 160 << 20
#: The most descriptors that a daemon may have: those of strangers, of whom it hears 64 at a port and 64 at its socket at
#: once, of 256 whose certificate it has verified, and some for each process and file of the load.
DESCRIPTORS_MAX = 2 * 64 + 256 + 250
#: The last words of a member that found no head, or came too late for it.
_FOUND_NO_HEAD = re.compile(r"error: .*(cannot be joined|does not answer|refuses this node|no cluster answers)")
#: What a thread says that panics. Its daemon may live on.
_PANIC = b"panicked at"
#: What a daemon's log says at times of how long the turns of its loop took: all since it began.
_TURNS = re.compile(
    rb"turns of the loop of process (\d+): (\d+), 99\.9 % within ([\d.]+) ms, the longest ([\d.]+) ms; longer than (.*)"
)
#: A percentile of fewer turns than these is the longest of them.
_TURNS_MIN = 1000


@dataclass(frozen=True)
class Look:
    """What one daemon had at a moment."""

    host: int
    resident_bytes: int
    descriptors: int


def look_at(host: int, pid: int) -> Look | None:
    """Nothing where it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        where = Path(f"/proc/{pid}")
        resident = re.findall(r"^VmRSS:\s+(\d+) kB$", (where / "status").read_text(), re.MULTILINE)
        return Look(host, int(resident[0]) << 10, len(list((where / "fd").iterdir())))
    return None


def verdict(host: int, status: int, last_words: str) -> str | None:
    """What is wrong about a daemon's end that this program did not bring about; nothing where it is legal."""
    if host != 0 and status == 1 and _FOUND_NO_HEAD.search(last_words.rstrip().rpartition("\n")[2]):
        return None
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with {status}"
    return f"no daemon ends by itself: that of host {host} {how}, and nobody here killed it: {last_words}"


@dataclass
class Watch:
    """Looks at all daemons again and again."""

    cluster: Cluster
    faults: list[str] = field(default_factory=list)
    #: Members that found no head.
    turned_away: int = 0
    #: The most of each daemon, by host: memory, and descriptors.
    most: dict[int, tuple[int, int]] = field(default_factory=dict)
    looks: int = 0
    _ended: set[int] = field(default_factory=set)
    _due: float = 0.0

    def look(self, now: float, killed: Set[int]) -> None:
        """Sees who has ended, but for those who were killed; and at times how the others are."""
        for host, process in self.cluster.daemons.items():
            status = process.poll()
            if status is not None and process.pid not in self._ended:
                self._ended.add(process.pid)
                if process.pid not in killed:
                    self._ended_by_itself(host, status)
        if now >= self._due:
            self._due = now + PERIOD_S
            for pid, host in self.cluster.serving().items():
                if found := look_at(int(host), pid):
                    self._note(found)

    def _ended_by_itself(self, host: int, status: int) -> None:
        fault = verdict(host, status, self.cluster.tail(self.cluster.folder / f"daemon-{host}.log"))
        if fault is not None:
            self.faults.append(fault)
        else:
            self.turned_away += 1

    def _note(self, found: Look) -> None:
        self.looks += 1
        memory, descriptors = self.most.get(found.host, (0, 0))
        self.most[found.host] = (max(memory, found.resident_bytes), max(descriptors, found.descriptors))

    def grown_too_large(self) -> list[str]:
        """Daemons that had more than their bounds."""
        return [
            f"no daemon grows without bound: that of host {host} had {most} {what}, more than {limit}"
            for host, found in sorted(self.most.items())
            for what, most, limit in zip(
                ("bytes of memory", "descriptors"), found, (RESIDENT_BYTES_MAX, DESCRIPTORS_MAX), strict=True
            )
            if most > limit
        ]

    def figures(self) -> dict[str, Any]:
        """For the report."""
        return {
            "most memory of a daemon (MiB)": {host: memory >> 20 for host, (memory, _) in sorted(self.most.items())},
            "most descriptors of a daemon": {host: most for host, (_, most) in sorted(self.most.items())},
            "looks at daemons": self.looks,
            "members that found no head": self.turned_away,
        }


def panics(folder: Path) -> list[str]:
    """What threads of this run panicked with, by the logs of all its processes."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and ".log" in path.name:
            with contextlib.suppress(OSError):
                lines = [line for line in path.read_bytes().split(b"\n") if _PANIC in line]
                found += [f"nothing panics: {path}: {line[-500:].decode(errors='replace')}" for line in lines[:5]]
    return found


def turns(folder: Path) -> dict[str, Any]:
    """How long the turns of all daemons' loops took, by the last that each log says of each process. What a daemon did
    after its last line and before it was killed is not in it."""
    found: dict[tuple[Path, bytes], tuple[int, float, float, Counter[str]]] = {}
    for path in sorted(folder.rglob("daemon.log*")):
        with contextlib.suppress(OSError):
            for process, count, within, longest, longer in _TURNS.findall(path.read_bytes()):
                pairs = [part.split(": ") for part in longer.decode().strip().split(", ")]
                over = Counter({limit: int(number) for limit, number in pairs})
                found[path.parent, process] = int(count), float(within), float(longest), over
    lives = list(found.values())
    longer: Counter[str] = Counter()
    for *_, over in lives:
        longer.update(over)
    count = sum(count for count, _, _, _ in lives)
    return {
        "turns of daemons' loops": count,
        "turns longer than": {limit: number for limit, number in longer.items() if number},
        "99.9 % of all are within": next((limit for limit, number in longer.items() if number * 1000 <= count), None),
        "99.9 % of one daemon's (ms)": max((within for count, within, _, _ in lives if count >= _TURNS_MIN), default=None),
        "the longest turn (ms)": max((longest for _, _, longest, _ in lives), default=None),
    }
