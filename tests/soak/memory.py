"""Very many small tasks from one driver: the memory of driver and daemon must not grow with them.

Tasks are submitted and collected in batches, each with its own argument and result. Resident memory of both processes
is read after a first share of the tasks, when everything that is kept on purpose has been set up, and at the end.

Prints its figures; exits non-zero where one of them is not what it must be.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import ray
from oxiray import _core, _session

BATCH = 10_000
#: What may be added after the mark, as a share of what there was at it.
GROWTH_LIMIT = 0.10
#: Kilobytes that may be added anyhow: what an allocator keeps of a few MiB differs by so much from run to run.
GROWTH_LIMIT_KB = 3 * 1024


@dataclass(frozen=True)
class Memory:
    """Resident kilobytes, and what is open, of one process."""

    resident_kb: int
    descriptors: int

    @staticmethod
    def of(pid: int | str) -> Memory:
        """Reads it from /proc."""
        status = Path(f"/proc/{pid}/status").read_text()
        resident = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return Memory(int(resident.split()[1]), len(list(Path(f"/proc/{pid}/fd").iterdir())))


@ray.remote
def follow(number: int) -> int:
    return number + 1


def run(count: int, first: int) -> None:
    """Runs `count` tasks and looks at every result."""
    references = [follow.remote(first + index) for index in range(count)]
    values = ray.get(references)
    assert values == list(range(first + 1, first + count + 1)), "a result is not what its task returned"


def processes() -> dict[str, Memory]:
    """Driver and daemon. The C library keeps freed pages for the next batch, more or fewer by chance: those of this
    process are given back first, so that what is left is what is kept."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    daemon = _session._daemon_pid
    assert daemon is not None, "the daemon is this program's own"
    return {"driver": Memory.of("self"), "daemon": Memory.of(daemon)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--mark", type=int, default=100_000, help="after how many tasks the first figures are taken")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    ray.init(address="local", num_cpus=arguments.workers, log_to_driver=False)
    began, done, marked = time.monotonic(), 0, None
    while done < arguments.tasks:
        count = min(BATCH, arguments.tasks - done)
        run(count, done)
        done += count
        if marked is None and done >= arguments.mark:
            marked = processes()
    assert marked is not None, "--mark lies behind --tasks"
    ended = processes()
    seconds = time.monotonic() - began
    known, stored = _core.objects_known(), _core.cluster()["store"]["objects"]
    ray.shutdown()
    failed = []
    for name, before in marked.items():
        after = ended[name]
        added_kb = after.resident_kb - before.resident_kb
        growth = added_kb / before.resident_kb
        print(
            f"{name}: {before.resident_kb / 1024:.1f} MiB after {arguments.mark:,} tasks, "
            f"{after.resident_kb / 1024:.1f} MiB after {done:,} ({growth:+.1%}); "
            f"descriptors {before.descriptors} and {after.descriptors}"
        )
        if growth > GROWTH_LIMIT and added_kb > GROWTH_LIMIT_KB:
            failed.append(f"the {name} grew by {growth:.1%}, more than {GROWTH_LIMIT:.0%}")
        if after.descriptors > before.descriptors + 8:
            failed.append(f"the {name} has {after.descriptors - before.descriptors} descriptors more")
    print(f"{done / seconds:,.0f} tasks/s; {known} objects known and {stored} stored at the end")
    if known or stored:
        failed.append("references or stored objects are left")
    for line in failed:
        print(f"FAILED {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
