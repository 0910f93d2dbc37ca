"""Tasks and actors that take all memory beside honest ones, in a container of 2 GiB with driver and daemon inside.

Every honest result must be right, every hog must be told why it ended, and driver and daemon must live. The container is
a control group of this script's own, made by root, of whichever version the machine has; with `--pod` it is a pod of a
cluster that the operator makes and a process kubelet runs.

Prints its figures; exits non-zero where something is not as it must be.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent
MEBIBYTES = 2048
PROCESSORS = 4
HONEST_IN_FLIGHT = 6
# What an honest task works on, and what it returns through the object store.
HONEST_BYTES = 16 << 20
# How long the last results may take after the time is over: hogs may be paused before they are begun again.
FINISH_S = 300
#: What every explanation must have: sizes in MiB or GiB, and what to do.
WORDS = ["memory", "iB"]


def honest(seed: int) -> Any:
    """Numbers that follow from the seed, with their sum in the last place."""
    import numpy as np

    numbers = np.random.default_rng(seed).integers(0, 1 << 20, HONEST_BYTES // 8)
    numbers[-1] = numbers[:-1].sum()
    return numbers


def check(seed: int, numbers: Any) -> bool:
    """Whether the result is the one of an honest task with this seed."""
    return bool((numbers == honest(seed)).all())


def grow() -> None:
    """Takes memory without end."""
    held = []
    while True:
        held.append(bytearray(8 << 20))
        held[-1][::4096] = b"x" * len(held[-1][::4096])


def grow_below() -> int:
    """Takes memory without end in a process of its own."""
    program = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import hogs; hogs.grow()"
    return subprocess.run([sys.executable, "-c", program], check=True).returncode


class Load:
    """What runs, and what came of it."""

    def __init__(self, seconds: float, seed: int) -> None:
        import ray

        self.ray = ray
        self.until = time.monotonic() + seconds
        self.chance = random.Random(seed)
        self.figures: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.honest: dict[Any, int] = {}
        self.hogs: dict[Any, str] = {}
        self.hog_actor = ray.remote(num_cpus=1)(type("Hog", (), {"grow": lambda self: grow()}))

    def run(self) -> None:
        while time.monotonic() < self.until:
            self.begin()
            self.take_in(timeout=1.0)
        limit = time.monotonic() + FINISH_S
        while (self.honest or self.hogs) and time.monotonic() < limit:
            self.take_in(timeout=1.0)
        if self.honest or self.hogs:
            self.wrong.append(f"after {FINISH_S} s {len(self.honest)} honest tasks and {len(self.hogs)} hogs have not ended")

    def begin(self) -> None:
        while len(self.honest) < HONEST_IN_FLIGHT:
            seed = self.figures["honest begun"]
            self.figures["honest begun"] += 1
            self.honest[self.ray.remote(honest).remote(seed)] = seed
        while len(self.hogs) < 2:
            kind = self.chance.choice(["task", "task once", "child", "actor"])
            self.figures["hogs begun"] += 1
            self.hogs[self.hog(kind)] = kind

    def hog(self, kind: str) -> Any:
        if kind == "actor":
            return self.hog_actor.remote().grow.remote()
        options = {"max_retries": 0} if kind == "task once" else {}
        return self.ray.remote(grow_below if kind == "child" else grow).options(**options).remote()

    def take_in(self, timeout: float) -> None:
        waited = [*self.honest, *self.hogs]
        for reference in self.ray.wait(waited, num_returns=1, timeout=timeout)[0]:
            if reference in self.honest:
                self.take_honest(reference, self.honest.pop(reference))
            else:
                self.take_hog(reference, self.hogs.pop(reference))

    def take_honest(self, reference: Any, seed: int) -> None:
        try:
            is_right = check(seed, self.ray.get(reference))
        except self.ray.exceptions.RayError as error:
            self.wrong.append(f"honest task {seed}: {type(error).__name__}: {error}")
            return
        self.figures["honest right" if is_right else "honest wrong"] += 1
        if not is_right:
            self.wrong.append(f"honest task {seed} has another result")

    def take_hog(self, reference: Any, kind: str) -> None:
        try:
            self.ray.get(reference)
            self.wrong.append(f"a hog ({kind}) ended without an error")
        except self.ray.exceptions.RayError as error:
            text = str(error)
            errors = self.ray.exceptions
            expected = errors.RayActorError if kind == "actor" else errors.OutOfMemoryError
            is_told = isinstance(error, expected) and all(word in text for word in WORDS)
            # A child that the kernel killed ends its task with an ordinary error of the task's own.
            is_told |= kind == "child" and isinstance(error, errors.RayTaskError) and "died with" in text
            self.figures["hogs told" if is_told else "hogs not told"] += 1
            self.figures["by the kernel"] += "the kernel killed it" in text
            if not is_told:
                self.wrong.append(f"a hog ({kind}) was told {type(error).__name__}: {text}")


def drive(seconds: float, seed: int, in_pod: bool = False) -> None:
    """The driver, within the container."""
    import ray

    # In a pod there is a daemon, which the operator gave its processors.
    ray.init(log_to_driver=False, **({} if in_pod else {"num_cpus": PROCESSORS}))
    load = Load(seconds, seed)
    load.run()
    # The daemon lives: it answers, and has room for everything.
    assert ray.get(ray.remote(lambda: 7).remote()) == 7
    print(json.dumps({"figures": load.figures, "wrong": load.wrong[:20]}), flush=True)
    ray.shutdown()


def in_group(program: str, limit_s: float) -> tuple[str, int]:
    """What the program prints in a control group, and how many processes the kernel killed there."""
    sys.path.insert(0, str(TESTS / "shared"))
    from control_groups import Group

    container = Group(MEBIBYTES)
    try:
        return container.run(program, timeout=limit_s), container.kills()
    finally:
        container.close()


def in_pod(program: str, limit_s: float) -> tuple[str, int]:
    """What the program prints in the pod of a cluster's head, and how many processes the kernel killed there."""
    sys.path[:0] = [str(TESTS / "shared"), str(TESTS / "kubernetes")]
    from lab import Lab, template
    from within import pod, ready, run, start

    with tempfile.TemporaryDirectory(prefix="oxh-") as folder:
        lab = Lab(Path(folder))
        try:
            lab.operator()
            kubelet = lab.kubelet(limits_memory=True)
            limits = {"cpu": str(PROCESSORS), "memory": f"{MEBIBYTES}Mi"}
            start(lab, headGroupSpec={"rayStartParams": {}, "template": template(limits)})
            ready(lab, 0)
            container = pod(kubelet, "demo-head").group
            assert container is not None, "the pod has a limit"
            return run(kubelet, program, limit_s=limit_s), container.kills()
        finally:
            lab.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pod", action="store_true", help="in a pod of a process kubelet")
    options = parser.parse_args()
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import hogs; "
        f"hogs.drive({options.seconds}, {options.seed}, in_pod={options.pod})"
    )
    began = time.monotonic()
    output, kills = (in_pod if options.pod else in_group)(program, options.seconds + FINISH_S + 60)
    told = json.loads(output.splitlines()[-1])
    figures = told["figures"] | {"kernel kills": kills, "seconds": round(time.monotonic() - began)}
    print(json.dumps(figures))
    for line in told["wrong"]:
        print(f"wrong: {line}", file=sys.stderr)
    is_well = not told["wrong"] and figures.get("honest right", 0) > 0 and figures.get("hogs told", 0) > 0
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
