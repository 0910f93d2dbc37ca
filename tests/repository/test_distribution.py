"""What is installed is what was promised: one abi3 wheel with the native binary in it, and one dependency."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
OXIRAY = importlib.metadata.distribution("oxiray")


def installed(name: str) -> Path:
    """A file of the installed distribution."""
    return Path(str(OXIRAY.locate_file(name)))


def test_nothing_but_cloudpickle_is_needed() -> None:
    assert [re.split(r"[<>=! ]", need)[0] for need in OXIRAY.requires or []] == ["cloudpickle"]


def test_one_wheel_serves_python_3_10_and_newer() -> None:
    wheel = OXIRAY.read_text("WHEEL") or ""
    assert re.search(r"^Tag: cp310-abi3-", wheel, re.MULTILINE), wheel
    assert OXIRAY.metadata["Requires-Python"] == ">=3.10"


def test_the_binary_travels_with_it_and_nothing_foreign_does() -> None:
    binary = installed("oxiray/_native/oxiray")
    assert os.access(binary, os.X_OK)
    assert binary.read_bytes()[:4] == b"\x7fELF"
    top = {str(file).split("/")[0] for file in OXIRAY.files or []} - {"..", OXIRAY._path.name}  # type: ignore[attr-defined]
    assert top == {"oxiray"}


def test_its_programs_are_in_every_wheel() -> None:
    packed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["maturin"]["include"]
    programs = {Path(one["path"]).name for one in packed} - {"*.whl"}
    for program in programs:
        told = subprocess.run([installed(f"oxiray/_native/{program}"), "--version"], capture_output=True, text=True, check=True)
        assert told.stdout.split()[:2] == [program, OXIRAY.version]
    passed_on = re.search(r"^PROGRAMS = (\{.*\})$", (ROOT / "scripts" / "make-wheels").read_text(), re.MULTILINE)
    assert passed_on is not None and set(ast.literal_eval(passed_on[1])) == programs


def test_types_travel_with_it() -> None:
    assert installed("oxiray/py.typed").exists()
    assert installed("oxiray/__init__.pyi").exists()


def test_command_is_the_native_binary() -> None:
    command = Path(sys.executable).parent / "oxiray"
    told = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    assert OXIRAY.version in told


def test_another_binary_can_be_chosen_and_a_missing_one_is_explained() -> None:
    command = Path(sys.executable).parent / "oxiray"
    chosen = subprocess.run(
        [command, "hello"], env={**os.environ, "OXIRAY_BINARY": "/bin/echo"}, capture_output=True, text=True, check=True
    )
    assert chosen.stdout == "hello\n"
    missing = subprocess.run(
        [command], env={**os.environ, "OXIRAY_BINARY": "/no/such/binary"}, capture_output=True, text=True, check=False
    )
    assert missing.returncode != 0
    assert "/no/such/binary" in missing.stderr and "hint:" in missing.stderr


def test_versions_agree() -> None:
    workspace = re.search(r'^version = "([^"]+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert workspace is not None and workspace[1] == OXIRAY.version
