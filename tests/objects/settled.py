"""Whether a program left anything behind: references, tasks, leases, records, stored objects, open memory files.

Run as `settled.py PROGRAM` it runs that file as `__main__`, keeps its connection open, drops whatever its module refers
to, and exits non-zero with what is left where that does not go away in time.
"""

from __future__ import annotations

import contextlib
import gc
import os
import runpy
import sys
import time

from oxiray import _core, _session


def memory_files(pid: object) -> int:
    """Memory files of the store that a process has open."""
    count = 0
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            count += "memfd:oxiray-object" in os.readlink(entry.path)
    return count


def left_behind() -> dict[str, int]:
    """What of a program is still there, by name; empty where nothing is."""
    gc.collect()
    figures = _core.figures()
    detail = _core.cluster()
    store = detail["store"]
    found = {
        "references": figures["objects"],
        "tasks": figures["tasks"],
        "leases": figures["leases"],
        "task specifications": figures["task_specs"],
        "bytes of task specifications": figures["task_spec_bytes"],
        "stored objects": store["objects"],
        "bytes of the store": store["used"],
        "bytes on disk": store["spilled"],
        "published objects": store["published"],
        "memory files open in the driver": memory_files("self"),
    }
    if _session._daemon_pid is not None:
        found["memory files of the daemon that the store does not know"] = (
            memory_files(_session._daemon_pid) - store["files"]
        )
    return {name: count for name, count in found.items() if count}


def settle(timeout: float = 60.0) -> dict[str, int]:
    """Waits until nothing is left; what is, when the time is over."""
    until = time.monotonic() + timeout
    while (left := left_behind()) and time.monotonic() < until:
        time.sleep(0.02)
    return left


def main() -> int:
    import ray

    program = sys.argv[1]
    sys.argv = [program]
    leave = ray.shutdown
    ray.shutdown = lambda *args, **kwargs: None
    with contextlib.suppress(SystemExit):
        runpy.run_path(program, run_name="__main__")
    left = settle() if _core.is_connected() else {}
    leave()
    if left:
        print(f"{program} left behind: {left}", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
