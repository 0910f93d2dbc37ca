"""How soon a fresh worker answers its first GPU task with a heavy module: preloaded by the template, or imported by itself.

Runs on a recorded machine with GPUs (`tests/fixtures/hosts`), so that it needs none: what is measured is the start of
the process, which uses no device. Each task gets a process of its own, since it holds a GPU. Times are those of a
whole `get(task.remote())`, first to last.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MACHINE = ROOT / "tests/fixtures/hosts/nvidia-h100x8"
#: What stands in for PyTorch where it is not installed; the output says so.
STAND_INS = ("torch", "pandas", "scipy.stats", "numpy")
#: What a preloaded worker has to keep below, in milliseconds.
WANTED_MS = 20.0


def heavy_module() -> str:
    """PyTorch, or the heaviest there is in its place."""
    for name in STAND_INS:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            return name
    sys.exit(f"none of {', '.join(STAND_INS)} is installed: there is nothing to preload")


def rounds(module: str, environment: dict[str, object], count: int) -> list[float]:
    """Milliseconds of each of `count` first tasks, after one that starts the template."""
    import oxiray

    @oxiray.remote(num_gpus=1, runtime_env=environment)
    def first_task() -> tuple[int, bool]:
        already = module in sys.modules
        found = importlib.import_module(module)
        if module == "torch":
            assert float(found.ones(8).sum()) == 8.0
        return os.getpid(), already

    oxiray.get(first_task.remote())
    times, processes = [], set()
    for _ in range(count):
        begun = time.perf_counter()
        process, already = oxiray.get(first_task.remote())
        times.append((time.perf_counter() - begun) * 1e3)
        processes.add(process)
        assert already == bool(environment), "the module was there when it should, and only then"
        # The next one is not to be measured beside the end of this one.
        while os.path.exists(f"/proc/{process}"):
            time.sleep(0.001)
    assert len(processes) == count, "every task had a process of its own"
    return times


def measured(module: str, is_preloaded: bool, count: int) -> list[float]:
    """The rounds of one cluster of its own."""
    import oxiray

    with tempfile.TemporaryDirectory(prefix="oxb-") as folder:
        os.environ.update(OXIRAY_TMPDIR=folder, OXIRAY_HOST_ROOT=str(MACHINE))
        oxiray.init(address="local", log_to_driver=False)
        try:
            return rounds(module, {"preload": [module]} if is_preloaded else {}, count)
        finally:
            oxiray.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--check", action="store_true", help=f"fail where the median with preload is above {WANTED_MS} ms")
    arguments = parser.parse_args()
    module = heavy_module()
    cost = [sys.executable, "-c", f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"]
    alone = float(subprocess.run(cost, capture_output=True, text=True, check=True).stdout) * 1e3
    stand_in = "" if module == "torch" else " (PyTorch is not installed; this stands in for it)"
    print(f"module {module}{stand_in}: importing it in a new interpreter takes {alone:.0f} ms")
    medians = {}
    for is_preloaded in (False, True):
        times = measured(module, is_preloaded, arguments.rounds if is_preloaded else max(arguments.rounds // 4, 3))
        medians[is_preloaded] = statistics.median(times)
        name = "with preload   " if is_preloaded else "without preload"
        print(
            f"{name}: median {medians[is_preloaded]:8.1f} ms, fastest {min(times):8.1f}, slowest {max(times):8.1f}, "
            f"{len(times)} fresh workers"
        )
    print(f"the first task is answered {medians[False] / medians[True]:.0f} times sooner")
    return 1 if arguments.check and medians[True] > WANTED_MS else 0


if __name__ == "__main__":
    sys.exit(main())
