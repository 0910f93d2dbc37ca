"""Many GPU tasks of random shares while workers are killed at random: no device may ever carry more than one whole.

Each task writes when it began and ended, and what it held, into a log of its own process, with the machine's monotonic
clock. Once everything is over the parent adds up, per device and moment, what was held: a killed task held its share at
least until its last sign of life. Then it looks for processes and memory files that the session left behind.

Prints its figures; exits non-zero where one of them is not what it must be.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ray

DEVICES = 8
UNITS = 10_000
# Whole devices, pairs, and fractions that fill devices unevenly.
SHARES = [1, 1, 2, 3, 0.1, 0.25, 0.3, 0.5, 0.5, 0.7, 0.9]
IN_FLIGHT = 200
RETRIES = 20
MARK = "OXIRAY_SOAK_SESSION"


@dataclass(frozen=True)
class Held:
    """One task attempt's hold on one device."""

    device: int
    units: int
    began_ns: int
    ended_ns: int


def work(folder: str, share: float, busy_us: int) -> int:
    """Hold the devices for a moment, and say so in this process's log."""
    import os
    import time

    import ray

    def say(what: str) -> None:
        os.write(log, f"{what} {time.clock_gettime_ns(time.CLOCK_MONOTONIC)}\n".encode())

    log = os.open(f"{folder}/{os.getpid()}-{time.monotonic_ns()}", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    ids = ray.get_gpu_ids()
    say(f"began {share} {','.join(map(str, ids))} {os.environ['CUDA_VISIBLE_DEVICES']}")
    ends = time.monotonic_ns() + busy_us * 1000
    while time.monotonic_ns() < ends:
        say("alive")
    say("ended")
    os.close(log)
    return os.getpid()


def read_log(path: Path) -> list[Held]:
    """What one attempt held; nothing where it was killed before it could say anything."""
    lines = [line.split() for line in path.read_text().splitlines() if line]
    # A line cut short by a kill is not the first, and its clock is not read.
    if not lines or lines[0][0] != "began" or len(lines[0]) != 5:
        return []
    _, share, ids, visible, began = lines[0]
    if ids != visible:
        raise AssertionError(f"{path.name}: told {ids}, shown {visible}")
    stamps = [int(line[1]) for line in lines[1:] if len(line) == 2 and line[1].isdigit()]
    ended = max([int(began), *stamps])
    devices = [int(one) for one in ids.split(",")]
    units = UNITS if float(share) >= 1 else round(float(share) * UNITS)
    if len(devices) != max(1, int(float(share))):
        raise AssertionError(f"{path.name}: asked {share}, holds {ids}")
    return [Held(device, units, int(began), ended) for device in devices]


def highest_per_device(held: list[Held]) -> dict[int, int]:
    """The most units ever held at once, per device."""
    changes: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for one in held:
        # At the same instant an end counts before a beginning.
        changes[one.device] += [(one.began_ns, one.units), (one.ended_ns, -one.units)]
    highest = {}
    for device, steps in changes.items():
        level = top = 0
        for _, step in sorted(steps):
            level += step
            top = max(top, level)
        highest[device] = top
    return highest


def session_processes() -> dict[int, str]:
    """Every living process of this session but this one: pid and command."""
    mark = f"{MARK}={os.environ[MARK]}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            zombie = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            if (
                not zombie
                and int(folder.name) != os.getpid()
                and mark in (folder / "environ").read_bytes().split(b"\0")
            ):
                found[int(folder.name)] = (
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
    return found


def memory_files() -> int:
    """Memory files this process still holds or maps; those of dead processes are gone with them."""
    held = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            held += os.readlink(link).startswith("/memfd:oxiray")
    return held + sum("/memfd:oxiray" in line for line in Path("/proc/self/maps").read_text().splitlines())


def log_pids(folder: Path) -> Iterator[int]:
    """The processes that are running a task just now, as far as their logs tell."""
    with os.scandir(folder) as entries:
        recent = [entry.name for entry in entries if time.time() - entry.stat().st_mtime < 0.05]
    for name in recent:
        yield int(name.split("-")[0])


class Killer:
    """Kills a random running worker every so many finished tasks."""

    def __init__(self, folder: Path, every: int, chance: random.Random) -> None:
        self.folder, self.every, self.chance = folder, every, chance
        self.next, self.kills = every, 0

    def after(self, finished: int) -> None:
        """Kill one where it is time."""
        if finished < self.next:
            return
        self.next = finished + self.every
        # The logs tell who ran a moment ago; only a living process of this session may be hit.
        living = session_processes()
        victims = [pid for pid in log_pids(self.folder) if pid in living]
        if victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.chance.choice(victims), signal.SIGKILL)
                self.kills += 1


def run_tasks(tasks: int, folder: Path, seed: int) -> tuple[int, Counter[str]]:
    """Run the tasks with workers killed on the way; returns how many were killed and how the tasks ended."""
    chance = random.Random(seed)
    killer = Killer(folder, max(tasks // 200, 10), random.Random(seed + 1))
    remote = ray.remote(work)
    ends: Counter[str] = Counter()
    pending: list[ray.ObjectRef] = []
    submitted = 0
    while submitted < tasks or pending:
        while submitted < tasks and len(pending) < IN_FLIGHT:
            share = chance.choice(SHARES)
            with_share = remote.options(num_gpus=share, num_cpus=0, max_retries=RETRIES)
            pending.append(with_share.remote(str(folder), share, chance.randrange(200, 3000)))
            submitted += 1
        ready, pending = ray.wait(pending, num_returns=1, timeout=60)
        if not ready:
            ends["stuck"] += len(pending)
            break
        for one in ready:
            try:
                ray.get(one)
                ends["finished"] += 1
            except ray.exceptions.WorkerCrashedError:
                ends["crashed for good"] += 1
        killer.after(sum(ends.values()))
    return killer.kills, ends


def soak(tasks: int, seed: int) -> dict[str, object]:
    """One whole run: a session, the tasks, its end, and what was found."""
    folder = Path(tempfile.mkdtemp(prefix="oxs-"))
    logs = folder / "logs"
    logs.mkdir()
    os.environ |= {MARK: folder.name, "RAY_TMPDIR": str(folder)}
    began = time.monotonic()
    try:
        ray.init(num_cpus=4, num_gpus=DEVICES, log_to_driver=False)
        kills, ends = run_tasks(tasks, logs, seed)
        seconds = time.monotonic() - began
        free = free_devices(60)
        ray.shutdown()
        left = processes_left(60)
        held = [one for path in logs.iterdir() for one in read_log(path)]
        highest = highest_per_device(held)
        return {
            "seed": seed,
            "tasks": tasks,
            "finished": ends["finished"],
            "not finished": tasks - ends["finished"],
            "attempts": sum(1 for _ in logs.iterdir()),
            "workers killed": kills,
            "tasks per second": round(tasks / seconds, 1),
            "most ever held of a device": max(highest.values(), default=0) / UNITS,
            "devices used": len(highest),
            "devices free at the end": free,
            "processes left": left,
            "memory files left": memory_files(),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def free_devices(deadline_s: float) -> float:
    """The devices that are free, once all are or the deadline has passed: a last worker may be dying still."""
    ends = time.monotonic() + deadline_s
    while (free := ray.available_resources().get("GPU", 0)) != DEVICES and time.monotonic() < ends:
        time.sleep(0.01)
    return free


def processes_left(deadline_s: float) -> dict[int, str]:
    """The session's processes, once there is none or the deadline has passed: its daemon ends after its driver left."""
    ends = time.monotonic() + deadline_s
    while (left := session_processes()) and time.monotonic() < ends:
        time.sleep(0.01)
    return left


def faults(figures: dict[str, object]) -> list[str]:
    """What a run shows that must not be."""
    wanted = {
        "not finished": 0,
        "devices used": DEVICES,
        "devices free at the end": DEVICES,
        "processes left": {},
        "memory files left": 0,
    }
    found = [f"{name}: {figures[name]}, must be {value}" for name, value in wanted.items() if figures[name] != value]
    if not 0 < float(str(figures["most ever held of a device"])) <= 1:
        found.append(f"most ever held of a device: {figures['most ever held of a device']}, must be at most 1")
    if not figures["workers killed"]:
        found.append("no worker was killed: the run shows nothing")
    return found


def main() -> int:
    """Soak, print the figures, judge them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--json", action="store_true", help="the figures as one JSON line")
    arguments = parser.parse_args()
    figures = soak(arguments.tasks, arguments.seed)
    if arguments.json:
        print(json.dumps(figures))
        return judge(faults(figures))
    return report(figures, faults(figures))


def report(figures: dict[str, object], found: list[str]) -> int:
    """Prints the figures of a run, and what must not be; returns the exit status."""
    width = max(28, *map(len, figures))
    for name, value in figures.items():
        print(f"{name:>{width}}  {value}")
    return judge(found)


def judge(found: list[str]) -> int:
    """Prints what must not be; returns the exit status."""
    for fault in found:
        print(f"FAULT {fault}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
