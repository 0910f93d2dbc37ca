"""The example of the guide does what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "docs" / "examples" / "train_spirals.py"


@pytest.mark.timeout(330)
def test_the_example_learns_and_survives_a_killed_worker(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, EXAMPLE, tmp_path], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    epochs, right = done.stdout.splitlines()[-1].split(", ")[:2]
    assert epochs == "30 epochs"
    assert float(right.partition("%")[0]) > 97, done.stdout
    assert "failure 1 of 1 allowed, starting again from checkpoint" in done.stderr
    assert (tmp_path / "killed").exists()
    assert (tmp_path / "spirals.svg").read_text().count("<polyline") == 2
