"""Who is killed, how often, and who comes in its place."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from daemons import Cluster, processes


#: Whoever wrote within so many seconds is taken to be at work.
BUSY_S = 0.1
#: Within how many seconds one of each kind is killed.
FIRST_S = 15.0


@dataclass(frozen=True)
class Victim:
    """A kind of process: how many seconds pass between two that are killed, on average; which there are; and how soon,
    in seconds, another one comes in its place, where this program has to see to that."""

    kind: str
    every_s: float
    living: Callable[[Cluster], dict[int, str]]
    replace: Callable[[Cluster, str], None] | None = None
    comes_back_s: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Fault:
    """One process that was killed."""

    at: float
    kind: str
    pid: int
    name: str


def _children(of: dict[int, str]) -> dict[int, str]:
    return {pid: f"{of[parent]}/{pid}" for pid, parent in processes().items() if parent in of}


def templates(cluster: Cluster) -> dict[int, str]:
    """What daemons started."""
    return _children(cluster.serving())


def workers(cluster: Cluster) -> dict[int, str]:
    """What templates forked: those that wrote into their diaries a moment ago, where there are any."""
    living, recent = _children(templates(cluster)), set()
    with os.scandir(cluster.folder / "diaries") as diaries:
        for diary in diaries:
            if time.time() - diary.stat().st_mtime < BUSY_S:
                recent.add(int(diary.name.split("-")[0]))
    return {pid: name for pid, name in living.items() if pid in recent} or living


def members(cluster: Cluster) -> dict[int, str]:
    """The daemons of all hosts but the head's, and their parents: whichever is killed, the other ends with it."""
    return {pid: host for pid, host in (cluster.started() | cluster.serving()).items() if host != "0"}


def heads(cluster: Cluster) -> dict[int, str]:
    """The head's daemon."""
    return {pid: host for pid, host in cluster.started().items() if host == "0"}


def drivers(cluster: Cluster) -> dict[int, str]:
    """The processes of the load that submit it."""
    return {process.pid: name for name, process in cluster.drivers.items() if process.poll() is None}


def _daemon_comes(cluster: Cluster, host: str) -> None:
    # A daemon that its kernel has ended at this very moment is replaced by its parent.
    cluster.daemons[int(host)].kill()
    cluster.daemons[int(host)].wait()
    cluster.begin_daemon(int(host))


def _driver_comes(cluster: Cluster, name: str) -> None:
    cluster.drivers[name].wait()
    cluster.start_driver(name)


VICTIMS = [
    Victim("worker", 0.4, workers),
    Victim("template", 4.0, templates),
    Victim("member", 6.0, members, _daemon_comes, (0.1, 5.0)),
    Victim("driver", 9.0, drivers, _driver_comes, (0.0, 1.0)),
    Victim("head", 30.0, heads, _daemon_comes, (0.0, 1.0)),
]


class Killer:
    """Kills at random, as the seed says, and has others come."""

    def __init__(self, cluster: Cluster, victims: list[Victim], seed: int, besides: Callable[[float], bool]) -> None:
        """`besides` is called again and again, and says whether the run may go on."""
        self._cluster, self._chance, self._besides = cluster, random.Random(f"{seed} killer"), besides
        # The first of each kind comes soon, so that a short run has all of them.
        first = [self._chance.uniform(2.0, min(victim.every_s, FIRST_S)) for victim in victims]
        self._due = [(time.monotonic() + after, victim) for after, victim in zip(first, victims, strict=True)]
        self._coming: list[tuple[float, Victim, str]] = []
        self.faults: list[Fault] = []
        #: Whom it has killed, and the parents that ended with them.
        self.killed: set[int] = set()

    def _pause(self, victim: Victim) -> float:
        return min(self._chance.expovariate(1 / victim.every_s), 5 * victim.every_s)

    def go_on(self, until: float) -> None:
        """Kills until that moment, or until a driver has ended that nobody killed, or all is over for another reason."""
        while (now := time.monotonic()) < until and not self._cluster.has_lost_a_driver() and self._besides(now):
            self._replace(now)
            self._due.sort(key=lambda due: due[0])
            at, victim = self._due[0]
            if at <= now:
                self._due[0] = (now + self._pause(victim), victim)
                self._kill(victim)
            coming = [at for at, _, _ in self._coming]
            time.sleep(max(0.0, min([until, self._due[0][0], now + 0.2, *coming]) - time.monotonic()))

    def rest(self) -> None:
        """Nobody is killed any more, and all that are to come are there."""
        self._replace(float("inf"))

    def _replace(self, now: float) -> None:
        for host in self._cluster.turned_away(self.killed):
            self._cluster.begin_daemon(host)
        for one in [one for one in self._coming if one[0] <= now]:
            self._coming.remove(one)
            _, victim, name = one
            assert victim.replace is not None, "only who is replaced is on the list"
            victim.replace(self._cluster, name)

    def _kill(self, victim: Victim) -> None:
        # Who was killed a moment ago may be seen as living still; another would be waited for in its place, for ever.
        coming = {name for _, other, name in self._coming if other is victim}
        living = sorted(one for one in victim.living(self._cluster).items() if one[1] not in coming)
        if not living:
            return
        pid, name = self._chance.choice(living)
        ends = {pid, self._cluster.daemons[int(name)].pid} if victim.replace is _daemon_comes else {pid}
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.killed |= ends
            self.faults.append(Fault(time.monotonic(), victim.kind, pid, name))
            with (self._cluster.folder / "killed").open("a") as told:
                told.write(f"{self.faults[-1]}\n")
            if victim.replace is not None:
                self._coming.append((time.monotonic() + self._chance.uniform(*victim.comes_back_s), victim, name))
