"""Libraries written for Ray, unmodified, on Oxiray under Ray's name: their results are those without it.

Runs in an environment of its own (`.build/ecosystem`, see the Makefile), which holds the libraries, the wheel and the
alias, and no Ray.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))


def test_the_ray_of_this_environment_is_oxiray() -> None:
    import oxiray
    import ray

    assert ray.init is oxiray.init


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_library_gives_the_results_that_it_gives_without(
    program: Path, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    # Whatever cluster this user runs is none of theirs.
    environment = os.environ | {"HAMILTON_TELEMETRY_ENABLED": "false", "OXIRAY_TMPDIR": str(tmp_path)}
    megabytes = pytestconfig.getoption("megabytes")
    size = ["--megabytes", str(megabytes)] if program.stem == "modin_frames" else []
    ended = subprocess.run(
        [sys.executable, program, *size],
        capture_output=True, text=True, timeout=180 + 2 * megabytes, cwd=tmp_path, env=environment, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.splitlines()[-1] == "equal", ended.stdout + ended.stderr
    print(ended.stdout)
