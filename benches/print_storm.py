"""How fast workers print, and how fast short tasks run that print nothing: what keeping their lines costs.

`python benches/print_storm.py [--shown] [--lines N] [--mebibytes N]` runs on the `ray` that is installed, and prints one
line of JSON. To compare two builds, run them in turns: a loaded machine changes from minute to minute.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable

import ray

_TEXT = "x" * 80
_BLOCK = (b"y" * 99 + b"\n") * 10486  # one MiB
_TASKS = 20_000


@ray.remote(num_cpus=0)
class Printer:
    def storm(self, lines: int) -> None:
        for _ in range(lines):
            print(_TEXT)

    def flood(self, mebibytes: int) -> None:
        for _ in range(mebibytes):
            os.write(1, _BLOCK)


@ray.remote
def nothing() -> None:
    pass


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shown", action="store_true", help="the driver listens")
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--mebibytes", type=int, default=256)
    given = parser.parse_args()
    ray.init(num_cpus=2, log_to_driver=given.shown, logging_level="ERROR")
    printers = [Printer.remote() for _ in range(2)]
    ray.get([one.storm.remote(100) for one in printers])
    ray.get([nothing.remote() for _ in range(1000)])
    lines_s = _seconds(lambda: ray.get([one.storm.remote(given.lines // 2) for one in printers]))
    flood_s = _seconds(lambda: ray.get([one.flood.remote(given.mebibytes // 2) for one in printers]))
    tasks_s = _seconds(lambda: ray.get([nothing.remote() for _ in range(_TASKS)]))
    figures = {
        "lines_per_s": round(given.lines / lines_s),
        "mebibytes_per_s": round(given.mebibytes / flood_s, 1),
        "tasks_per_s": round(_TASKS / tasks_s),
    }
    print(json.dumps(figures), file=sys.stderr)


if __name__ == "__main__":
    main()
