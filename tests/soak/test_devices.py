"""The soak of devices in small: shares and memories, with kills, trespassers, greed and illness."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import documented
import nvml
import pytest

SOAK = Path(__file__).parent / "devices.py"
sys.path.insert(0, str(SOAK.parent))
from devices import Attempt, given_while_ill  # noqa: E402  (it lies beside this file, not in a package)
from soak import UNITS, Held  # noqa: E402

SECOND = 1_000_000_000


@pytest.mark.timeout(420)
def test_some_hundred_tasks_on_devices_that_fall_ill() -> None:
    command = [sys.executable, str(SOAK), "--tasks", "601", "--seed", "1"]
    environment = documented.clean_environment(Path("/tmp"), {"OXIRAY_NVML_LIBRARY": nvml.library()})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]


def test_a_device_that_is_given_while_it_is_ill_is_seen() -> None:
    def begun(device: int, seconds: float) -> Attempt:
        return Attempt(1, "honest", [Held(device, UNITS, int(seconds * SECOND), int((seconds + 1) * SECOND))])

    ill = [(2, 10 * SECOND, 20 * SECOND)]
    assert given_while_ill([begun(2, 17)], ill) == 1
    assert given_while_ill([begun(3, 15), begun(2, 11), begun(2, 21)], ill) == 0, "another, before that was known, and after it"
