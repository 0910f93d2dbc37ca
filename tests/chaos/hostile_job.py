"""A job whose workers lie: each of its tasks and actors finds the streams of its own worker and has them lied on.

Whatever becomes of this job is legal; of others' work nothing may.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

from driver import HEAD_ABSENCE_S, connect

import ray

#: How many of its tasks and actors there are at once.
_AT_ONCE = 3
#: How long a worker is lied in the name of, in milliseconds.
_LIE_MS = (200, 2_500)
#: Where they may run: on any node, or on the hostile member only, which lies about them.
_RESOURCES = [{}, {}, {}, {"hostile": 1}]


def lie(binary: str, report: str, seed: int) -> str:
    """Lies on each stream of this process, and then ends in some way, at times with the whole process."""
    chance = random.Random(seed)
    children = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                told = [f"--seed={chance.randrange(1 << 48)}", f"--lasts-ms={chance.randrange(*_LIE_MS)}"]
                children.append(subprocess.Popen([binary, "worker", *told, f"--report={report}"], stdin=int(name)))
    for child in children:
        child.wait()
    end = chance.randrange(5)
    if end == 0:
        os._exit(chance.randrange(256))
    if end == 1:
        os.kill(os.getpid(), chance.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV]))
    if end == 2:
        raise RuntimeError("it was a lie")
    return "x" * chance.choice([1, 1_000, 300_000])


@ray.remote(num_cpus=0)
class Liar:
    """Lies when it is made, or when it is called."""

    def __init__(self, given: tuple[str, str, int], at_once: bool) -> None:
        if at_once:
            lie(*given)

    def lie(self, given: tuple[str, str, int]) -> str:
        """As a task does."""
        return lie(*given)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--worker-report", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--lasts-ms", type=int, required=True)
    parser.add_argument("--report", type=Path, required=True)
    given = parser.parse_args()
    until, chance = time.monotonic() + given.lasts_ms / 1000, random.Random(given.seed)
    with contextlib.suppress(ConnectionError):
        connect(HEAD_ABSENCE_S)
        work(given.binary, given.worker_report, given.report, chance, until)
    if chance.random() < 0.5:
        os._exit(0)


def work(binary: str, worker_report: str, report: Path, chance: random.Random, until: float) -> None:
    """Has some lie at once, again and again."""
    task, running = ray.remote(num_cpus=0)(lie), []
    while time.monotonic() < until:
        told = (binary, worker_report, chance.randrange(1 << 48))
        options = {"resources": chance.choice(_RESOURCES)}
        if chance.random() < 0.7:
            running.append(task.options(max_retries=chance.randrange(3), **options).remote(*told))
            done = "tasks"
        else:
            actor = Liar.options(max_restarts=chance.randrange(2), **options).remote(told, chance.random() < 0.5)
            running.append(actor.lie.remote(told))
            done = "actors"
        with report.open("a") as out:
            out.write(json.dumps({done: 1}) + "\n")
        while len(running) >= _AT_ONCE and time.monotonic() < until:
            _, running = ray.wait(running, timeout=0.5)


if __name__ == "__main__":
    main()
