"""A mixed load over several daemons while processes of every kind are killed at random: every result must be the one that
was computed without the runtime, and the invariants must hold. Beside the load a stranger, a member and the workers of a
job mean harm (`hostile.py`), which must not be seen in any result.

A head and members, which join over TLS, run the work of several drivers. A seed says who is killed when. Afterwards each
worker's own diary tells what it held and ran, and a last driver looks whether what was promised is there.

Prints its figures; exits non-zero, with what does not hold and where to look, where something does not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diary
import watch
from daemons import Cluster, of_the_run
from hostile import Hostiles, lacking
from load import PATIENCE_S
from ticket import lines_of
from victims import VICTIMS, Fault, Killer

MEMBERS, DRIVERS = 3, ["a", "b"]
#: How long the drivers may take for what they had begun, once nobody is killed any more: as long as one wait, and the
#: pieces that wait after each other are few.
_LAST_WORK_S = 2 * PATIENCE_S
#: How long everything may take to be gone, in seconds.
_END_S = 30.0
_AUDIT_S = 300.0


def run(seconds: float, seed: int, folder: Path) -> dict[str, Any]:
    """One whole run; what it found, its faults among that."""
    heads_die = any(victim.kind == "head" for victim in VICTIMS)
    cluster = Cluster(folder, seed, heads_die)
    faults: list[str] = []
    hostiles, watched = Hostiles(cluster, seed), watch.Watch(cluster)

    def besides(now: float) -> bool:
        hostiles.renew(now)
        watched.look(now, killer.killed)
        return not watched.faults

    killer = Killer(cluster, VICTIMS, seed, besides)
    try:
        for host in range(MEMBERS + 1):
            cluster.start_daemon(host)
        for name in DRIVERS:
            cluster.start_driver(name)
        killer.go_on(time.monotonic() + seconds)
        killer.rest()
        faults += end_load(cluster, besides)
        hostiles.end()
        audit = cluster.audit(_AUDIT_S)
        faults += [str(fault) for fault in list(audit["faults"])]  # type: ignore[call-overload]
        watched.look(time.monotonic(), killer.killed)
        faults += [f"nothing hangs: {late} did not end" for late in cluster.stop(_END_S)]
        faults += left_over(folder)
    finally:
        cluster.kill_all()
    found = figures(folder, killer.faults)
    found["promises looked at"] = audit.get("promises", 0)
    found |= watched.figures() | watch.turns(folder)
    found["the hostile"] = hostiles.deeds()
    found["faults"] = [
        *watched.faults, *watched.grown_too_large(), *watch.panics(folder), *hostiles.faults, *faults, *found["faults"],
    ]  # fmt: skip
    return found


def end_load(cluster: Cluster, besides: Callable[[float], bool]) -> list[str]:
    """The drivers finish what they have begun; those that do not, or that ended by themselves, and why."""
    (cluster.folder / "stop").touch()
    until = time.monotonic() + _LAST_WORK_S
    while (now := time.monotonic()) < until and any(one.poll() is None for one in cluster.drivers.values()):
        besides(now)
        time.sleep(0.1)
    faults = []
    for name, process in cluster.drivers.items():
        status = process.poll()
        if status is None:
            faults.append(f"nothing hangs: driver {name} does not finish")
        elif status != 0:
            faults.append(f"driver {name} ended with {status}: {cluster.tail(cluster.folder / f'driver-{name}.log')}")
    return faults


def left_over(folder: Path) -> list[str]:
    """Processes of the run that outlived their cluster, and memory files that they hold."""
    until = time.monotonic() + _END_S
    while (left := of_the_run(folder)) and time.monotonic() < until:
        time.sleep(0.05)
    return [f"no process outlives its cluster: {pid} does: {command}" for pid, command in left.items()]


def figures(folder: Path, killed: list[Fault]) -> dict[str, Any]:
    """What ledgers and diaries tell."""
    pieces: dict[str, list[float | None]] = {}
    legal: Counter[str] = Counter()
    faults = []
    for path in sorted(folder.glob("ledger-*-*")):
        for line in lines_of(path):
            if line["what"] == "begin":
                pieces[line["piece"]] = [line["at"], None]
            elif line["what"] in ("end", "fault"):
                pieces[line["piece"]][1] = line["at"]
                legal.update(line.get("legal", []))
            if line["what"] == "fault":
                faults.append(f"the result is the reference's: {line['piece']}: {line['error']}\n{line['told']}")
    diaries = diary.read(folder / "diaries")
    faults += [f"no device is held beyond one: {overlap}" for overlap in diary.overlaps(diaries.held)]
    ended = [(began, end) for began, end in pieces.values() if began is not None and end is not None]
    kinds = Counter(name.rpartition("-")[2] for name, (_, end) in pieces.items() if end is not None)
    return {
        "killed": dict(Counter(fault.kind for fault in killed)),
        "pieces of work ended": dict(sorted(kinds.items())),
        "pieces ended in all": len(ended),
        "cut off with their driver": sum(end is None for _, end in pieces.values()),
        "legal failures": dict(sorted(legal.items())),
        "tasks run": len(diaries.begun),
        "tasks retried": sum(diaries.begun.values()) - len(diaries.begun) - sum(diaries.again.values()),
        "objects rebuilt": sum(diaries.again.values()),
        "actors made": len(diaries.made),
        "actors restarted": sum(diaries.made.values()) - len(diaries.made),
        "holds of devices": len(diaries.held),
        "devices held": len({hold.device for hold in diaries.held}),
        "time to recover (s)": recovery([fault.at for fault in killed], ended),
        "faults": faults,
    }


def recovery(killed_at: list[float], ended: list[tuple[float, float]]) -> dict[str, float]:
    """From each kill until the last piece of work is done that was under way when it came. So it is an upper bound: what
    a piece still had to do is in it, and what later kills cost it."""
    times = []
    for at in killed_at:
        under_way = [end - at for began, end in ended if began < at < end]
        if under_way:
            times.append(max(under_way))
    if len(times) < 2:
        return {}
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return {"median": round(cuts[49], 2), "99th percentile": round(cuts[98], 2), "longest": round(max(times), 2)}


def shows_nothing(found: dict[str, Any]) -> list[str]:
    """What a run lacks that would not have seen a fault."""
    lacks = [f"no {victim.kind} was killed" for victim in VICTIMS if not found["killed"].get(victim.kind)]
    wanted = ("tasks retried", "holds of devices", "looks at daemons")
    lacks += [f"there were no {name}" for name in wanted if not found[name]]
    return [*(f"the run shows nothing: {lack}" for lack in lacks), *lacking(found["the hostile"])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("CHAOS_SECONDS", "1800")))
    seed = os.environ.get("CHAOS_SEED")
    parser.add_argument("--seed", type=int, default=int(seed) if seed else random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--json", action="store_true", help="the figures as one line of JSON at the end")
    given = parser.parse_args()
    print(f"seed {given.seed}, {given.seconds:g} s", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="oxc-"))
    found = run(given.seconds, given.seed, folder)
    found = {"seed": given.seed, "seconds": given.seconds, **found}
    faults = found["faults"] = [*found["faults"], *shows_nothing(found)]
    for name, value in found.items():
        if name != "faults":
            print(f"{name:>28}  {value}")
    for fault in faults:
        print(f"FAULT {fault}")
    if faults:
        print(f"{len(faults)} faults. Logs, ledgers and diaries of the run are in {folder}.")
        print(f"Again: CHAOS_SEED={given.seed} CHAOS_SECONDS={given.seconds:g} make chaos")
    else:
        shutil.rmtree(folder)
    if given.json:
        print(json.dumps(found))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
