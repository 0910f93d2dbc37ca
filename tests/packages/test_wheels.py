"""The wheels that are passed on: for which machines and systems they are, and that they tell nothing of who built them."""

from __future__ import annotations

import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
#: Debian 10, RHEL 8 and Ubuntu 20.04 have it or a newer one.
GLIBC_MAX = (2, 28)
#: The number of each machine in the header of a program.
MACHINES = {"x86_64": 62, "aarch64": 183}
NATIVE = ["oxiray/_core.abi3.so", *(f"oxiray/_native/oxiray{ending}" for ending in ("", "-dashboard", "-storage"))]


def wheel_of(wheels: Path, machine: str) -> zipfile.ZipFile:
    [path] = wheels.glob(f"oxiray-*-cp310-abi3-manylinux_2_28_{machine}.whl")
    return zipfile.ZipFile(path)


def test_there_is_one_for_each_machine_and_the_alias(wheels: Path) -> None:
    ends = sorted(re.sub(r"^([a-z_]+)-[\d.]+-", r"\1 ", path.name) for path in wheels.iterdir())
    machines = [f"oxiray cp310-abi3-manylinux_2_28_{machine}.whl" for machine in sorted(MACHINES)]
    assert ends == [*machines, "oxiray_ray_alias py3-none-any.whl"]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", NATIVE)
def test_native_files_run_on_older_systems_of_their_machine(wheels: Path, machine: str, name: str, tmp_path: Path) -> None:
    with wheel_of(wheels, machine) as wheel:
        file = Path(wheel.extract(name, tmp_path))
    assert int.from_bytes(file.read_bytes()[18:20], "little") == MACHINES[machine]
    told = subprocess.run(["readelf", "--version-info", file], capture_output=True, text=True, check=True).stdout
    wanted = {tuple(map(int, found.split("."))) for found in re.findall(r"Name: GLIBC_(\d+(?:\.\d+)+)", told)}
    assert wanted and max(wanted) <= GLIBC_MAX


@pytest.mark.parametrize("machine", MACHINES)
def test_they_name_no_folder_of_the_builder(wheels: Path, machine: str) -> None:
    home = os.environ.get("CARGO_HOME", str(Path.home() / ".cargo"))
    with wheel_of(wheels, machine) as wheel:
        contents = {name: wheel.read(name) for name in wheel.namelist()}
    folders = [str(ROOT).encode(), home.encode(), str(Path.home() / ".rustup").encode()]
    found = [(name, folder) for name, text in contents.items() for folder in folders if folder in text]
    assert found == [] and set(NATIVE) <= set(contents)


@pytest.mark.parametrize("machine", MACHINES)
def test_they_hold_what_git_knows_and_no_more(wheels: Path, machine: str) -> None:
    listed = subprocess.run(["git", "ls-files", "python/oxiray"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    sources = {name.removeprefix("python/") for name in listed.splitlines()}
    with wheel_of(wheels, machine) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    alias = {name for name in held if re.fullmatch(r"oxiray/_native/oxiray_ray_alias-[\d.]+-py3-none-any\.whl", name)}
    assert len(alias) == 1 and held == sources | set(NATIVE) | alias
