"""The soak in small, and that its arithmetic would see a device given twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import documented
import pytest

SOAK = Path(__file__).parent / "soak.py"
sys.path.insert(0, str(SOAK.parent))
from soak import UNITS, Held, highest_per_device  # noqa: E402  (it lies beside this file, not in a package)


@pytest.mark.timeout(420)
def test_a_thousand_tasks_with_workers_killed_at_random() -> None:
    command = [sys.executable, str(SOAK), "--tasks", "1000", "--seed", "1", "--json"]
    environment = documented.clean_environment(Path("/tmp"), {})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["finished"] == 1000


def test_two_holders_of_one_device_are_seen() -> None:
    assert highest_per_device([Held(0, UNITS, 10, 20), Held(0, UNITS // 10, 19, 30)]) == {0: UNITS + UNITS // 10}


def test_one_after_the_other_is_no_overlap() -> None:
    held = [Held(0, UNITS, 10, 20), Held(0, UNITS, 20, 30), Held(1, UNITS // 2, 10, 30), Held(1, UNITS // 2, 11, 12)]
    assert highest_per_device(held) == {0: UNITS, 1: UNITS}
