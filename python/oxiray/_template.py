"""The template process: it imports once what workers need, and forks them on request.

Invariants:
1. One thread, no device opened, nothing of the user's imported unless asked for: otherwise a fork is unsafe.
2. It outlives nobody: when the daemon goes, its workers and whatever they left behind go first.
"""

from __future__ import annotations

import gc
import os
import time
from typing import NoReturn

_STARTED = time.monotonic()


def main() -> NoReturn:
    """Serves until the daemon is gone. The child of a fork becomes a worker here and never returns."""
    from oxiray import _core, _worker

    descriptor = int(os.environ.pop("OXIRAY_TEMPLATE_FD"))
    # The daemon starts templates itself; programs look for its process there.
    os.environ["RAY_RAYLET_PID"] = str(os.getppid())
    _worker.prepare()
    notice = ""
    if "OXIRAY_TEMPLATE_PRELOAD" in os.environ:
        from oxiray import _preload

        notice = _preload.in_template(descriptor)
    _worker.print_as_workers_do()
    gc.collect()
    gc.freeze()
    template = _core.Template(descriptor, int((time.monotonic() - _STARTED) * 1e6), notice)
    while template.next():
        try:
            pid = os.fork()
        except OSError as error:
            template.forked(0, str(error))
            continue
        if pid == 0:
            _worker.main(template.become_child())
        template.forked(pid, "")
    os._exit(0)


if __name__ == "__main__":
    main()
