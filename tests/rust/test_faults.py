"""Processes of a Rust program that die, in every role: nothing hangs, and nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from watching import processes_of, wait_until

#: How long anything may take on a machine that is busy with other things, in seconds.
LIMIT = 120.0


class Staying:
    """The program in a call that never ends, on a cluster of its own."""

    def __init__(self, program: Path, folder: Path) -> None:
        # It names everything that this one starts.
        self.mark = f"OXIRAY_TMPDIR={folder}"
        environment = os.environ | {"OXIRAY_TMPDIR": str(folder)}
        self.driver = subprocess.Popen(
            [str(program), "stay"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def worker(self) -> int:
        """The process of the call, once it has begun."""
        assert self.driver.stdout is not None
        said = re.fullmatch(r"\(staying pid=(\d+)\) staying", self.driver.stdout.readline().strip())
        assert said is not None
        return int(said.group(1))

    def daemon(self) -> int:
        """The one child of the driver."""

        def parent(pid: int) -> int:
            try:
                return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                return 0

        (daemon,) = (pid for pid in processes_of(self.mark) if parent(pid) == self.driver.pid)
        return daemon

    def end(self) -> str:
        """The rest of what the program says, when it and all that it started are gone."""
        said, _ = self.driver.communicate(timeout=LIMIT)
        wait_until(lambda: not processes_of(self.mark), LIMIT)
        return said


@pytest.fixture
def staying(languages: Path, tmp_path: Path) -> Iterator[Staying]:
    begun = Staying(languages, tmp_path)
    yield begun
    begun.driver.kill()
    begun.driver.wait()
    for pid in processes_of(begun.mark):
        os.kill(pid, signal.SIGKILL)


def test_a_call_whose_worker_is_killed_is_run_again_and_then_fails(staying: Staying) -> None:
    for _ in range(2):
        os.kill(staying.worker(), signal.SIGKILL)
    assert "ended: Err(WorkerDied: " in staying.end()
    assert staying.driver.returncode == 0


def test_nothing_outlives_a_killed_driver(staying: Staying) -> None:
    staying.worker()
    staying.driver.kill()
    staying.end()


def test_a_driver_whose_daemon_is_killed_says_so(staying: Staying) -> None:
    staying.worker()
    os.kill(staying.daemon(), signal.SIGKILL)
    assert re.search(r"ended: Err\(daemon_died: ", staying.end())
