"""The memory soak in small."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import documented
import pytest

MEMORY = Path(__file__).parent / "memory.py"


@pytest.mark.timeout(420)
def test_tasks_leave_no_memory_behind() -> None:
    command = [sys.executable, str(MEMORY), "--tasks", "120000", "--mark", "20000"]
    environment = documented.clean_environment(Path("/tmp"), {})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
