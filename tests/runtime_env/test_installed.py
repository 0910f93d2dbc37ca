"""Environments with packages of their own: pip, uv, other interpreters."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import site
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ray
from ray.exceptions import RuntimeEnvSetupError
from watching import wait_until, written

pytestmark = pytest.mark.timeout(100)


@ray.remote
def version():
    import tinyone

    return tinyone.VERSION, sys.executable


@ray.remote
def executable():
    return sys.executable


@ray.remote
class Versioned:
    def version(self):
        import tinyone

        return tinyone.VERSION


def uv_is_to_be_had() -> bool:
    return shutil.which("uv") is not None or (Path(sys.executable).parent / "uv").exists()


def test_pip_installs_once_for_many_tasks_and_for_nobody_else(shared, wheels, installed) -> None:
    before = len(installed())
    asked = wheels.pip("tinyone==1.0", pip_check=False)
    found = ray.get([version.options(runtime_env=asked).remote() for _ in range(20)], timeout=90)
    assert {number for number, _ in found} == {"1.0"}
    assert len({interpreter for _, interpreter in found}) == 1
    assert len(installed()) == before + 1
    assert ray.get(Versioned.options(runtime_env=asked).remote().version.remote(), timeout=60) == "1.0"
    assert len(installed()) == before + 1
    with pytest.raises(ModuleNotFoundError):
        ray.get(version.remote(), timeout=30)
    other = ray.get(version.options(runtime_env=wheels.pip("tinyone==2.0")).remote(), timeout=60)
    assert other[0] == "2.0"


@pytest.mark.skipif(not uv_is_to_be_had(), reason="there is no uv on this machine, and it cannot be fetched offline")
def test_uv_installs(shared, wheels) -> None:
    assert ray.get(version.options(runtime_env=wheels.uv("tinyone==2.0", uv_check=True)).remote(), timeout=90)[0] == "2.0"


def test_a_file_of_requirements_and_a_job_with_packages(cluster, wheels, tmp_path) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"--no-index\n--find-links {wheels.folder}\ntinyone==1.0\n")
    cluster(runtime_env={"pip": str(requirements)})
    assert ray.get(version.remote(), timeout=90)[0] == "1.0"

    @ray.remote
    def parent():
        inherited = ray.get(version.remote())[0]
        own = ray.get(version.options(runtime_env=wheels.pip("tinyone==2.0")).remote())[0]
        return inherited, own

    assert ray.get(parent.remote(), timeout=90) == ("1.0", "2.0")


def test_what_cannot_be_installed_says_what_the_installer_said(shared, wheels) -> None:
    begun = time.monotonic()
    with pytest.raises(RuntimeEnvSetupError, match="nowhere"):
        ray.get(version.options(runtime_env=wheels.pip("needy")).remote(), timeout=60)
    first = time.monotonic() - begun
    actor = Versioned.options(runtime_env=wheels.pip("needy")).remote()
    with pytest.raises(RuntimeEnvSetupError, match="nowhere"):
        ray.get(actor.version.remote(), timeout=60)
    # The failure is remembered for a while, so the second to ask waits for nothing.
    assert time.monotonic() - begun < 2 * first + 10


def test_a_slow_installation_is_ended(shared, wheels, tmp_path) -> None:
    asked = {**wheels.pip(str(wheels.slow(tmp_path))), "config": {"setup_timeout_seconds": 3}}
    with pytest.raises(RuntimeEnvSetupError, match="setup_timeout_seconds"):
        ray.get(version.options(runtime_env=asked).remote(), timeout=60)


def test_installers_end_with_their_daemon(place, wheels, tmp_path) -> None:
    """The daemon is killed in the middle: nothing goes on, and the next one takes nothing half made for whole."""

    def begun() -> set[Path]:
        return {path for path in place.glob("oxiray-*/cache/environments/*/") if not (path / "complete").exists()}

    before = begun()
    package = wheels.slow(tmp_path)
    asked = wheels.pip(str(package))
    program = (
        f"import ray, time; from oxiray import _session; ray.init(num_cpus=1, runtime_env={asked!r}); "
        "print(_session._daemon_pid, flush=True); time.sleep(1000)"
    )
    driver = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    daemon = int(driver.stdout.readline())
    watched = os.pidfd_open(int(written(package / "pid")))
    os.kill(daemon, signal.SIGKILL)
    assert select.select([watched], [], [], 20)[0], "the installer's own child lives on"
    os.close(watched)
    driver.kill()
    driver.wait()
    half_made = begun() - before
    assert len(half_made) == 1
    (package / "go").touch()
    ray.shutdown()
    ray.init(num_cpus=1, runtime_env=asked)
    assert ray.get(executable.remote(), timeout=60) == str(half_made.pop() / "bin" / "python")
    assert begun() == set(), "what the dead left behind is gone"
    ray.shutdown()


def test_nobody_waits_behind_an_environment(shared, wheels, tmp_path) -> None:
    package = wheels.slow(tmp_path)

    @ray.remote
    def read():
        import slow

        return slow.VERSION

    waiting = read.options(runtime_env=wheels.pip(str(package))).remote()
    wait_until((package / "pid").exists)
    assert ray.get(executable.remote(), timeout=30) == sys.executable
    assert ray.wait([waiting], timeout=0)[0] == []
    (package / "go").touch()
    assert ray.get(waiting, timeout=60) == "1.0"


def test_another_interpreter(shared, tmp_path) -> None:
    link = tmp_path / "python"
    link.write_text(f"#!/bin/sh\nOF_THE_COMMAND=1 exec {sys.executable} \"$@\"\n")
    link.chmod(0o755)

    @ray.remote
    def started():
        import os

        return os.environ.get("OF_THE_COMMAND")

    assert ray.get(started.options(runtime_env={"py_executable": str(link)}).remote(), timeout=60) == "1"
    assert ray.get(started.remote(), timeout=30) is None
    command = f"/usr/bin/env OF_THE_COMMAND=2 {sys.executable}"
    assert ray.get(started.options(runtime_env={"py_executable": command}).remote(), timeout=60) == "2"
    with pytest.raises(RuntimeEnvSetupError, match="py_executable"):
        ray.get(started.options(runtime_env={"py_executable": str(tmp_path / "none")}).remote(), timeout=60)
    with pytest.raises(RuntimeEnvSetupError, match="cannot run workers"):
        ray.get(started.options(runtime_env={"py_executable": "/bin/false"}).remote(), timeout=60)


def test_variables_that_act_at_the_start(shared, tmp_path) -> None:
    (tmp_path / "early_module.py").write_text("VALUE = 7\n")

    @ray.remote
    def read():
        import early_module

        return early_module.VALUE

    assert ray.get(read.options(runtime_env={"env_vars": {"PYTHONPATH": str(tmp_path)}}).remote(), timeout=60) == 7


def test_the_least_used_environment_is_evicted(place, wheels, monkeypatch, installed) -> None:
    """A limit below the size of one environment: what a cluster does not use any more goes."""
    ray.shutdown()
    monkeypatch.setenv("OXIRAY_ENVIRONMENT_CACHE_BYTES", "1")
    for number in ("1.0", "2.0"):
        ray.init(num_cpus=1, runtime_env=wheels.pip(f"tinyone=={number}"))
        assert ray.get(version.remote(), timeout=90)[0] == number
        # In use: it stays, however small the limit.
        assert len(installed()) == 1
        assert json.loads(installed()[0].read_text())["bytes"] > 0
        ray.shutdown()


def test_what_was_not_finished_is_made_anew(place, wheels, installed) -> None:
    ray.shutdown()
    asked = wheels.pip("tinyone==1.0")
    ray.init(num_cpus=1, runtime_env=asked)
    _, interpreter = ray.get(version.remote(), timeout=90)
    ray.shutdown()
    environment = Path(interpreter).parent.parent
    (environment / "complete").unlink()
    shutil.rmtree(next(environment.glob("lib*/python*/site-packages")))
    ray.init(num_cpus=1, runtime_env=asked)
    assert ray.get(version.remote(), timeout=90) == ("1.0", interpreter)
    ray.shutdown()


def test_an_environment_sees_the_drivers_packages_and_no_others(shared, wheels, tmp_path) -> None:
    """Those of the interpreter that the driver's virtual environment was made with are not the driver's."""

    @ray.remote
    def folders():
        import site

        return sys.path, site.getsitepackages()

    paths, own = ray.get(folders.options(runtime_env=wheels.pip("tinyone==1.0")).remote(), timeout=90)
    packages = {path for path in paths if path.endswith(("site-packages", "dist-packages"))}
    drivers = {path for path in [*sys.path, *site.getsitepackages()] if path.endswith(("site-packages", "dist-packages"))}
    assert packages & set(own), "its own packages come from its own folder"
    assert packages - set(own) <= drivers
