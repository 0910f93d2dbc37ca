"""Control groups of a test's own, of whichever version this machine has; made by root, as CI runs."""

from __future__ import annotations

import contextlib
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
        """How many of its processes the kernel killed for want of memory, as far as their groups are still there."""
        # Version 2 counts for the groups above as well.
        groups = self._groups() if self._kills == "memory.oom_control" else [self.folder]
        lines = [line for group in groups for line in (group / self._kills).read_text().splitlines()]
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def close(self) -> None:
        """Ends what is left in the group and those that a daemon made in it, and removes them, as a container's end does."""
        until = time.monotonic() + 60
        while self.folder.exists():
            assert time.monotonic() < until, "the group's processes do not end"
            for group in self._groups():
                with contextlib.suppress(FileNotFoundError):
                    _end(group)

    def _groups(self) -> list[Path]:
        """This group and all within it, the innermost first."""
        return [Path(folder) for folder, _, _ in os.walk(self.folder, topdown=False)]


def _end(group: Path) -> None:
    for pid in (group / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), 9)
    # It fails while a process is still in it.
    with contextlib.suppress(OSError):
        group.rmdir()
