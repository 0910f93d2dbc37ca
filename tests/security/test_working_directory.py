"""Nothing of Oxiray's imports or runs what lies in the working directory, in which another user may write."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from homes import free_port
from oxiray._cli import native_binary
from wheels import Wheels

#: What is planted: modules of ours, of what we depend on, of what Python imports at its start, and of what it imports late.
PLANTED = (
    "oxiray", "ray", "cloudpickle", "json", "sitecustomize", "usercustomize", "site", "runpy", "subprocess", "sysconfig",
    "venv", "pip", "ensurepip", "asyncio", "select", "tempfile",
)  # fmt: skip
#: Programs that are found by their names.
PROGRAMS = ("python3", "uv", "npu-smi", "hl-smi")

DRIVER = """
import json, sys
import ray

def said(remote):
    return ray.get(remote, timeout=100)

@ray.remote
def version():
    import tinyone
    return tinyone.VERSION

@ray.remote
def module_here(name):
    import importlib.util, sys
    return importlib.util.find_spec(name) is not None, "" in sys.path

asked = json.loads(sys.argv[1])
ray.init(**asked["init"])
out = {"here": said(module_here.remote("only_here")), "beside": said(module_here.remote("only_beside"))}
for name, environment in asked["environments"].items():
    out[name] = said(version.options(runtime_env=environment).remote())
print(json.dumps(out))
"""


class Trap:
    """A directory full of another user's modules and programs, each of which leaves a mark when it is run."""

    def __init__(self, folder: Path, owner: int | None) -> None:
        self.folder, self.marks = folder / "shared", folder / "marks"
        self.folder.mkdir()
        self.marks.mkdir()
        self.marks.chmod(0o777)
        for name in PLANTED:
            self._plant(f"{name}.py", f"open({str(self.marks / name)!r}, 'w').close()\nraise SystemError('planted')\n")
        for name in PROGRAMS:
            self._plant(name, f"#!/bin/sh\n: > {self.marks / name}\nexit 1\n")
        # What an installer reads of its own accord.
        (folder / "uv.toml").write_text('[[index]]\nurl = "http://127.0.0.1:9/planted"\ndefault = true\n')
        (self.folder / "only_here.py").write_text("")
        if owner is not None:
            for path in (self.folder, *self.folder.iterdir()):
                os.chown(path, owner, owner)
        self.folder.chmod(0o1777)

    def _plant(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def caught(self) -> list[str]:
        """What was run."""
        return sorted(path.name for path in self.marks.iterdir())


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder whose path is short and that every user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="oxi-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


class Victim:
    """Runs commands in the trap."""

    def __init__(self, place: Path, trap: Trap, user: int | None) -> None:
        self.trap, self.home = trap, place / "home"
        self.home.mkdir()
        (self.home / "only_beside.py").write_text("")
        # It may read what this user reads, such as the interpreter, and is another one all the same.
        self.prefix = [] if user is None else [
            "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--inh-caps=+dac_read_search",
            "--ambient-caps=+dac_read_search",
        ]  # fmt: skip
        if user is not None:
            for path in (self.home, *self.home.iterdir()):
                os.chown(path, user, user)
        self.environment = {
            **{name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "PYTHONPATH")},
            "OXIRAY_TMPDIR": str(self.home),
            "HOME": str(self.home),
            "OXIRAY_INTERPRETER": sys.executable,
        }

    def run(self, *command: str, **variables: str) -> str:
        done = subprocess.run(
            [*self.prefix, *command], cwd=self.trap.folder, env={**self.environment, **variables}, capture_output=True,
            text=True, check=False, timeout=110,
        )  # fmt: skip
        assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def drive(self, init: dict[str, Any], environments: dict[str, Any]) -> None:
        """Runs a driver, whose tasks find what lies beside it and what their environments bring."""
        (self.home / "driver.py").write_text(DRIVER)
        asked = json.dumps({"init": init, "environments": environments})
        said = json.loads(self.run(sys.executable, str(self.home / "driver.py"), asked))
        assert said == {"here": [False, False], "beside": [True, False], **dict.fromkeys(environments, "1.0")}


def environments(place: Path, *names: str) -> dict[str, Any]:
    """Environments in which `tinyone` is there, by how it comes there."""
    wheels = Wheels(place / "wheels")
    wheels.make("tinyone", "1.0")
    beside = {"env_vars": {"PYTHONPATH": f"{place / 'wheels' / 'tinyone-1.0-py3-none-any.whl'}:"}}
    wrapper = f"/usr/bin/env {sys.executable}"
    known = {
        "plain": beside,
        "preload": {**beside, "preload": ["tinyone"]},
        "pip": wheels.pip("tinyone"),
        "uv": wheels.uv("tinyone"),
        "wrapper": {**beside, "py_executable": wrapper},
    }
    return {name: known[name] for name in names}


def test_a_private_cluster_runs_nothing_of_the_working_directory(place: Path) -> None:
    trap = Trap(place, None)
    every = environments(place, "plain", "preload", "pip", "uv", "wrapper")
    Victim(place, trap, None).drive({"num_cpus": 1}, every)
    assert trap.caught() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_another_users_files_are_not_run(place: Path) -> None:
    trap = Trap(place, 4002)
    victim = Victim(place, trap, 4001)
    command = str(Path(sys.executable).with_name("oxiray"))
    port = free_port()
    address = f"localhost:{port}"
    victim.run(command, "start", "--head", "--num-cpus=1", f"--port={port}")
    try:
        victim.run(command, "status", "--address", address)
        victim.drive({"address": address}, environments(place, "preload"))
        assert "a job ran" in victim.run(command, "job", "submit", "--address", address, "--", "echo", "a job ran")
    finally:
        victim.run(command, "stop")
    assert trap.caught() == []


def test_empty_entries_of_search_paths_are_not_the_working_directory(place: Path) -> None:
    trap = Trap(place, None)
    victim = Victim(place, trap, None)
    # The native program imports nothing; the daemon that it starts does, with these variables.
    paths = {"PATH": ":" + os.environ["PATH"], "PYTHONPATH": ":", "LD_LIBRARY_PATH": ":"}
    del victim.environment["OXIRAY_INTERPRETER"]
    port = free_port()
    victim.run(str(native_binary()), "start", "--head", "--num-cpus=1", f"--port={port}", **paths)
    try:
        victim.drive({"address": f"localhost:{port}"}, environments(place, "plain", "uv"))
    finally:
        victim.run(str(native_binary()), "stop")
    assert trap.caught() == []
