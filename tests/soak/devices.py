"""Tasks of random shares and memories of GPUs while workers are killed, trespass, take too much memory, and devices fall ill.

The machine is a recorded one with eight GPUs, and NVIDIA's libraries are the ones of `crates/nvml-fixture`, whose answers this
program writes. Each task says in a log of its own what it holds, and since when. In the end the logs, the ledger, the library and
`/proc` have to agree: no device ever carried more than one whole, none was handed out while it was ill, every trespasser and
whoever took too much memory was ended with the error that says so, and everything is free.

Prints its figures; exits non-zero where one of them is not what it must be.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "shared")]
import soak as shares
from soak import DEVICES, IN_FLIGHT, RETRIES, UNITS, Held, Killer
from watching import wait_until

import ray
from ray.exceptions import DeviceMemoryExceededError, DeviceViolationError

ROOT = Path(__file__).resolve().parents[2]
GIB = 1 << 30
SIZE = 80 * GIB
#: What is asked for: whole devices, shares, and bytes.
ASKED: list[dict[str, float]] = [
    *({"num_gpus": share} for share in (1, 1, 2, 0.25, 0.3, 0.5, 0.5, 0.9)),
    *({"gpu_memory": gib * GIB} for gib in (8, 10, 20, 40, 60)),
]
#: Those that fall ill: fewer than half, or the breaker keeps them in service.
ILL = (2, 5, 7)
#: Which device's node is which device of this machine: those of `/dev/full` and `/dev/zero`.
NODES = {0: ("1:7", "/dev/full"), 1: ("1:5", "/dev/zero")}
#: A task that was granted its device before that fell ill has begun by then.
BEGINS_WITHIN_S = 6.0
#: Trespassers and those that take too much wait so long to be ended.
ENDED_WITHIN_S = 90.0


def work(folder: str, asked: dict[str, float], busy_us: int, role: str) -> int:
    """Hold what was asked for, and say so; a trespasser opens another device, and who is greedy waits to be found so."""
    import os
    import time

    import ray

    def say(what: str) -> None:
        os.write(log, f"{what} {time.clock_gettime_ns(time.CLOCK_MONOTONIC)}\n".encode())

    log = os.open(f"{folder}/{os.getpid()}-{time.monotonic_ns()}", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    ids = ray.get_gpu_ids()
    (amount,) = asked.values()
    say(f"began {next(iter(asked))}={amount} {','.join(map(str, ids))} {role}")
    held = None
    if role == "trespasser":
        held = os.open("/dev/full" if int(ids[0]) != 0 else "/dev/zero", os.O_RDWR)
    ends = time.monotonic_ns() + busy_us * 1000
    while time.monotonic_ns() < ends:
        say("alive")
        if role != "honest":
            time.sleep(0.02)
    say("ended")
    os.close(log)
    if held is not None:
        os.close(held)
    return os.getpid()


@dataclass
class Attempt:
    """One attempt of a task: what it held, and its process."""

    pid: int
    role: str
    held: list[Held]


def read_log(path: Path) -> Attempt | None:
    """What one attempt held; nothing where it was killed before it could say anything."""
    lines = [line.split() for line in path.read_text().splitlines() if line]
    if not lines or lines[0][0] != "began" or len(lines[0]) != 5:
        return None
    _, asked, ids, role, began = lines[0]
    name, _, amount = asked.partition("=")
    stamps = [int(line[1]) for line in lines[1:] if len(line) == 2 and line[1].isdigit()]
    ended = max([int(began), *stamps])
    if name == "gpu_memory":
        # Rounded down, so that what is held at once is not made more than it is.
        units = int(float(amount)) * UNITS // SIZE
    else:
        units = UNITS if float(amount) >= 1 else round(float(amount) * UNITS)
    held = [Held(int(one), units, int(began), ended) for one in ids.split(",")]
    return Attempt(int(path.name.split("-")[0]), role, held)


@dataclass
class Libraries:
    """The file with what NVIDIA's libraries answer."""

    file: Path
    errors: str = ""
    recovering: set[int] = field(default_factory=set)
    #: Bytes of processes, by device.
    taken: dict[int, dict[int, int]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self) -> None:
        lines = []
        for slot in range(DEVICES):
            listed = ",".join(f"{pid}:{used}" for pid, used in self.taken.get(slot, {}).items())
            lines.append(f"NVIDIA H100 80GB HBM3|GPU-{slot}||{SIZE}|0|{listed}||0\n")
        lines += ["cuda=sound\n", self.errors, *(f"recovery={slot}:1\n" for slot in self.recovering)]
        draft = self.file.with_suffix(".draft")
        draft.write_text("".join(lines))
        draft.rename(self.file)

    def falls_ill(self, slot: int, xid: int) -> None:
        with self.lock:
            self.errors += f"xid={slot}:{xid}\n"
            self.recovering.add(slot)
            self.write()

    def is_well(self, slot: int) -> None:
        with self.lock:
            self.recovering.discard(slot)
            self.write()

    def takes(self, slot: int, pid: int, used: int) -> None:
        with self.lock:
            self.taken.setdefault(slot, {})[pid] = used
            self.write()

    def forget_the_dead(self) -> None:
        with self.lock:
            for listed in self.taken.values():
                for pid in [pid for pid in listed if not Path(f"/proc/{pid}").exists()]:
                    del listed[pid]
            self.write()


def out_of_service(address: str) -> dict[int, str]:
    """The devices that the ledger gives to nobody, and why."""
    from oxiray import _cli

    command = [_cli.native_binary(), "status", "--json", "--address", address]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {device["slot"]: device["reason"] for device in told["devices"] if device.get("reason")}


class Trouble(threading.Thread):
    """Has devices fall ill and get well, and lists processes that take too much, until it is stopped."""

    def __init__(self, libraries: Libraries, logs: Path, address: str, chance: random.Random) -> None:
        super().__init__(name="trouble", daemon=True)
        self.libraries, self.logs, self.address, self.chance = libraries, logs, address, chance
        self.over = threading.Event()
        #: When which device was ill for sure: after the ledger said so, and before it could get well.
        self.ill: list[tuple[int, int, int]] = []
        self.came_back = 0
        self._greedy: set[int] = set()

    def run(self) -> None:
        while not self.over.wait(1.0):
            self._list_the_greedy()
            slot = self.chance.choice(ILL)
            self.libraries.falls_ill(slot, self.chance.choice([79, 95]))
            if not self._waits_until(lambda slot=slot: slot in out_of_service(self.address)):
                continue
            noticed = time.monotonic_ns()
            self._waits_until(lambda: False, BEGINS_WITHIN_S + 2)
            self.ill.append((slot, noticed, time.monotonic_ns()))
            self.libraries.is_well(slot)
            self.came_back += self._waits_until(lambda slot=slot: slot not in out_of_service(self.address))

    def _waits_until(self, holds: Callable[[], bool], seconds: float = 60.0) -> bool:
        ends = time.monotonic() + seconds
        while not self.over.is_set() and time.monotonic() < ends:
            if holds():
                return True
            self._list_the_greedy()
            time.sleep(0.1)
        return False

    def _list_the_greedy(self) -> None:
        for path in self.logs.iterdir():
            pid = int(path.name.split("-")[0])
            if pid in self._greedy or not Path(f"/proc/{pid}").exists():
                continue
            found = read_log(path)
            if found is not None and found.role == "greedy":
                self._greedy.add(pid)
                self.libraries.takes(found.held[0].device, pid, 70 * GIB)
        self.libraries.forget_the_dead()


def run_tasks(tasks: int, logs: Path, seed: int) -> tuple[int, Counter[str]]:
    """Runs the tasks; returns how many workers were killed, and how those of each role ended."""
    chance = random.Random(seed)
    killer = Killer(logs, max(tasks // 200, 10), random.Random(seed + 1))
    remote = ray.remote(work)
    ends: Counter[str] = Counter()
    pending: dict[ray.ObjectRef, str] = {}
    submitted = 0
    while submitted < tasks or pending:
        while submitted < tasks and len(pending) < IN_FLIGHT:
            role = "honest" if submitted % 200 else ("trespasser", "greedy")[submitted // 200 % 2]
            # A trespasser that had both devices whose nodes open would open one of its own.
            of_role = {"greedy": {"gpu_memory": 10 * GIB}, "trespasser": {"num_gpus": 1}}
            asked = of_role.get(role) or chance.choice(ASKED)
            busy_us = chance.randrange(200, 3000) if role == "honest" else int(ENDED_WITHIN_S * 1e6)
            options = {"num_cpus": 0, "max_retries": RETRIES if role == "honest" else -1, **asked}
            pending[remote.options(**options).remote(str(logs), asked, busy_us, role)] = role
            submitted += 1
        ready, _ = ray.wait(list(pending), num_returns=1, timeout=ENDED_WITHIN_S + 30)
        if not ready:
            ends["stuck"] += len(pending)
            break
        for one in ready:
            ends[f"{pending.pop(one)}: {how_it_ended(one)}"] += 1
        killer.after(sum(ends.values()))
    return killer.kills, ends


def how_it_ended(task: ray.ObjectRef) -> str:
    try:
        ray.get(task)
    except (DeviceViolationError, DeviceMemoryExceededError, ray.exceptions.WorkerCrashedError) as error:
        return type(error).__name__
    return "finished"


def given_while_ill(attempts: list[Attempt], ill: list[tuple[int, int, int]]) -> int:
    """How many attempts began on a device of which the ledger knew for long enough that it is ill."""
    margin = int(BEGINS_WITHIN_S * 1e9)
    held = [one for attempt in attempts for one in attempt.held]
    return sum(one.device == slot and since + margin < one.began_ns < until for slot, since, until in ill for one in held)


def prepared(folder: Path) -> Libraries:
    """The machine and its libraries."""
    import nvml

    host = folder / "host"
    shutil.copytree(ROOT / "tests" / "fixtures" / "hosts" / "nvidia-h100x8", host)
    described = json.loads((host / "host.json").read_text())
    described["nodes"].update({f"/dev/nvidia{slot}": number for slot, (number, _) in NODES.items()})
    (host / "host.json").write_text(json.dumps(described))
    library = os.environ.get("OXIRAY_NVML_LIBRARY") or nvml.library()
    libraries = Libraries(folder / "nvml.txt")
    libraries.write()
    os.environ |= {
        "OXIRAY_HOST_ROOT": str(host),
        "OXIRAY_NVML_LIBRARY": library,
        "OXIRAY_CUDA_LIBRARY": library,
        "OXIRAY_NVML_FIXTURE": str(libraries.file),
    }
    return libraries


def soak(tasks: int, seed: int) -> dict[str, object]:
    """One whole run: a session, the tasks, its end, and what was found."""
    folder = Path(tempfile.mkdtemp(prefix="oxd-"))
    logs = folder / "logs"
    logs.mkdir()
    os.environ |= {shares.MARK: folder.name, "RAY_TMPDIR": str(folder)}
    libraries = prepared(folder)
    began = time.monotonic()
    try:
        ray.init(num_cpus=4, num_gpus=DEVICES, log_to_driver=False, device_isolation="watch", device_violations="end")
        address = ray.get_runtime_context().gcs_address
        listens = libraries.file.with_name(libraries.file.name + ".waits")
        wait_until(listens.exists, 30)
        trouble = Trouble(libraries, logs, address, random.Random(seed + 2))
        trouble.start()
        kills, ends = run_tasks(tasks, logs, seed)
        seconds = time.monotonic() - began
        trouble.over.set()
        trouble.join(60)
        for slot in ILL:
            libraries.is_well(slot)
        libraries.forget_the_dead()
        free = shares.free_devices(60)
        still_out = out_of_service(address)
        ray.shutdown()
        left = shares.processes_left(60)
        attempts = [found for path in logs.iterdir() if (found := read_log(path)) is not None]
        highest = shares.highest_per_device([one for attempt in attempts for one in attempt.held])
        return {
            "seed": seed,
            "tasks": tasks,
            **{f"ended: {name}": count for name, count in sorted(ends.items())},
            "attempts": len(attempts),
            "workers killed": kills,
            "times a device was ill": len(trouble.ill),
            "times one came back meanwhile": trouble.came_back,
            "given while ill": given_while_ill(attempts, trouble.ill),
            "tasks per second": round(tasks / seconds, 1),
            "most ever held of a device": max(highest.values(), default=0) / UNITS,
            "devices used": len(highest),
            "devices free at the end": free,
            "out of service at the end": still_out,
            "processes that the library lists": sum(map(len, libraries.taken.values())),
            "processes left": left,
            "memory files left": shares.memory_files(),
        }
    finally:
        with contextlib.suppress(Exception):
            ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def faults(figures: dict[str, object]) -> list[str]:
    """What a run shows that must not be."""
    wanted = {
        "given while ill": 0,
        "devices used": DEVICES,
        "devices free at the end": DEVICES,
        "out of service at the end": {},
        "processes that the library lists": 0,
        "processes left": {},
        "memory files left": 0,
    }
    found = [f"{name}: {figures[name]}, must be {value}" for name, value in wanted.items() if figures[name] != value]
    if not 0 < float(str(figures["most ever held of a device"])) <= 1:
        found.append(f"most ever held of a device: {figures['most ever held of a device']}, must be at most 1")
    allowed = ("ended: honest: finished", "ended: trespasser: DeviceViolationError", "ended: greedy: DeviceMemoryExceededError")
    found += [f"{name}: {count}" for name, count in figures.items() if name.startswith("ended: ") and name not in allowed]
    found += [f"{name}: none, so that the run shows nothing" for name in (*allowed, "workers killed", "times a device was ill") if not figures.get(name)]
    return found


def main() -> int:
    """Soak, print the figures, judge them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    arguments = parser.parse_args()
    figures = soak(arguments.tasks, arguments.seed)
    return shares.report(figures, faults(figures))


if __name__ == "__main__":
    sys.exit(main())
