"""The wheel is installed in a clean system, which has neither Rust nor a compiler, and runs the README's first program there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import snippets
from clean_debian import DEBIAN, ROOT, clean_debian, emulated

#: How long installing and the first program may take.
SECONDS_MAX = 60
#: Nothing of a compiler is there.
BARE = "for program in cc gcc clang ld rustc cargo; do ! command -v $program; done; python3 -m venv /opt/oxiray\n"
INSTALL = "/opt/oxiray/bin/pip install --quiet --no-index --find-links /given oxiray oxiray-ray-alias\n"


@pytest.fixture(scope="module")
def given(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels, what they require, and the README's program."""
    folder = tmp_path_factory.mktemp("given")
    for wheel in wheels.iterdir():
        shutil.copy2(wheel, folder)
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), "cloudpickle>=3"]
    subprocess.run(fetch, check=True)
    (folder / "first.py").write_text(program().text)
    return folder


def program() -> snippets.Block:
    [first, *_] = [block for block in snippets.blocks((ROOT / "README.md").read_text()) if block.language == "python"]
    return first


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("machine", DEBIAN)
@pytest.mark.timeout(1800)
def test_the_first_program_runs_within_a_minute(machine: str, given: Path) -> None:
    with emulated(machine):
        system = clean_debian(machine)
        script = f"{BARE} date +%s.%N\n{INSTALL} /opt/oxiray/bin/python /given/first.py\n date +%s.%N\n"
        done = system.run(script, given, timeout_s=600)
    assert done.returncode == 0, done.stdout + done.stderr
    began, *printed, ended = done.stdout.splitlines()
    assert program().expected is not None and "\n".join(printed).strip() == program().expected.strip()
    took = float(ended) - float(began)
    print(f"{machine}: pip install and the README's first program took {took:.1f} s")
    assert took < SECONDS_MAX


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("machine", DEBIAN)
@pytest.mark.timeout(1800)
def test_the_programs_run(machine: str, given: Path) -> None:
    programs = "cd /opt/oxiray/lib/python3*/site-packages/oxiray/_native\n"
    asked = "uname -m; ./oxiray --version; ./oxiray-dashboard --version; ./oxiray-storage --version; ./oxiray hardware\n"
    with emulated(machine):
        done = clean_debian(machine).run(f"{BARE}{INSTALL}{programs}{asked}", given, timeout_s=600)
    assert done.returncode == 0, done.stdout + done.stderr
    name, *versions = done.stdout.splitlines()
    assert name == machine and [line.split()[0] for line in versions[:3]] == ["oxiray", "oxiray-dashboard", "oxiray-storage"]
    assert all(re.match(r"[a-z-]+ \d+\.\d+\.\d+", line) for line in versions[:3])
    assert versions[3] == "Accelerators of this machine"
    print(done.stdout)
