"""Hogs beside honest work, in small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import documented
import pytest

HOGS = Path(__file__).parent / "hogs.py"


@pytest.mark.timeout(420)
@pytest.mark.parametrize("where", [[], ["--pod"]], ids=["group", "pod"])
def test_hogs_are_told_and_honest_work_is_right(where: list[str]) -> None:
    command = [sys.executable, str(HOGS), "--seconds", "8", *where]
    environment = documented.clean_environment(Path("/tmp"), {})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    if "no control group can be made here" in done.stderr:
        pytest.skip("no control group can be made here")
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["hogs told"] > 0 and figures["honest right"] > 0
