"""Control groups of a test's own, of whichever version this machine has; made by root, as CI runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

_ROOT = Path("/sys/fs/cgroup")


class Group:
    """A control group with a limit on memory. Programs are started within it."""

    def __init__(self, mebibytes: int) -> None:
        name = f"oxiray-test-{os.getpid()}-{time.monotonic_ns()}"
        first_version = (_ROOT / "memory" / "memory.limit_in_bytes").exists()
        self.folder = (_ROOT / "memory" if first_version else _ROOT) / name
        try:
            if not first_version:
                (_ROOT / "cgroup.subtree_control").write_text("+memory")
            self.folder.mkdir()
        except OSError as error:
            pytest.skip(f"no control group can be made here: {error}")
        self._limit = "memory.limit_in_bytes" if first_version else "memory.max"
        (self.folder / self._limit).write_text(str(mebibytes << 20))
        self._kills = "memory.oom_control" if first_version else "memory.events"

    def start(self, program: str, **environment: str) -> subprocess.Popen[str]:
        """A Python program in a process of its own, within the group from its first instruction on."""
        enter = f"open({str(self.folder / 'cgroup.procs')!r}, 'w').write('0')\n"
        return subprocess.Popen(
            [sys.executable, "-c", enter + program],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, program: str, timeout: float = 120, **environment: str) -> str:
        """What a program within the group prints; it must end well."""
        process = self.start(program, **environment)
        try:
            output, _ = process.communicate(timeout=timeout)
        finally:
            process.kill()
        assert process.returncode == 0, f"status {process.returncode}\n{output}"
        return output

    def entered_by(self, command: list[str]) -> list[str]:
        """A command that enters the group and becomes the given one."""
        return ["sh", "-c", 'echo 0 > "$0" && exec "$@"', str(self.folder / "cgroup.procs"), *command]

    def kills(self) -> int:
        """How many of its processes the kernel killed for want of memory."""
        lines = (self.folder / self._kills).read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def close(self) -> None:
        """Ends what is left in the group, and removes it."""
        until = time.monotonic() + 60
        while True:
            for pid in (self.folder / "cgroup.procs").read_text().split():
                try:
                    os.kill(int(pid), 9)
                except ProcessLookupError:
                    pass
            try:
                return self.folder.rmdir()
            except OSError:
                assert time.monotonic() < until, "the group's processes do not end"
