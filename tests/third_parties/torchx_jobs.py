"""Jobs that TorchX's Ray scheduler runs on a cluster of this machine: its own tests of it are in no distribution."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray.job_submission import JobSubmissionClient
from torchx.runner import Runner, get_runner
from torchx.schedulers.ray_scheduler import has_ray
from torchx.specs import AppDef, AppHandle, AppState, AppStatus, Resource, Role

#: How long a job may take, in seconds.
LIMIT_S = 90


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def dashboard() -> Iterator[str]:
    """A cluster that was started by its command; the address at which jobs are submitted."""
    address = f"127.0.0.1:{free_port()}"
    command = str(Path(sys.executable).with_name("ray"))
    options = [f"--port={free_port()}", f"--dashboard-port={address.rpartition(':')[2]}", "--num-cpus=4", "--block"]
    process = subprocess.Popen([command, "start", "--head", *options])
    try:
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                JobSubmissionClient(f"http://{address}")
                break
            except (ConnectionError, RuntimeError):
                assert process.poll() is None, "the cluster has ended"
                assert time.monotonic() < deadline, "the cluster does not answer"
                time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait(LIMIT_S)


@pytest.fixture
def runner() -> Iterator[Runner]:
    with get_runner("tests") as made:
        yield made


def app(folder: Path, script: str, replicas: int = 1, **variables: str) -> AppDef:
    """An application whose replicas run a script, in a folder of its own."""
    image = folder / "image"
    image.mkdir()
    (image / "program.py").write_text(script)
    role = Role(
        name="workers", image=str(image), entrypoint="python3", args=["program.py", "${replica_id}"], env=variables,
        num_replicas=replicas, resource=Resource(cpu=1, gpu=0, memMB=1),
    )  # fmt: skip
    return AppDef(name="job", roles=[role])


def submit(runner: Runner, application: AppDef, dashboard: str) -> AppHandle:
    return runner.run(application, "ray", {"dashboard_address": dashboard})


def ended(runner: Runner, handle: AppHandle) -> AppStatus:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        status = runner.status(handle)
        if status is not None and status.is_terminal():
            return status
        time.sleep(0.5)
    raise TimeoutError(f"{handle} did not end in {LIMIT_S} s: {runner.status(handle)}")


def test_torchx_has_its_ray_scheduler(runner: Runner) -> None:
    assert has_ray()
    assert "ray" in runner.scheduler_backends()


def test_a_job_runs_and_its_output_is_read(runner: Runner, dashboard: str, tmp_path: Path) -> None:
    handle = submit(runner, app(tmp_path, "print('hello from the job')"), dashboard)
    assert ended(runner, handle).state == AppState.SUCCEEDED
    assert "hello from the job" in "".join(runner.log_lines(handle, "ray"))


def test_replicas_run_each_once(runner: Runner, dashboard: str, tmp_path: Path) -> None:
    script = (
        "import os, pathlib, sys; pathlib.Path(os.environ['WHERE'], sys.argv[1]).write_text(os.environ['TORCHX_RANK0_HOST'])"
    )
    where = tmp_path / "where"
    where.mkdir()
    handle = submit(runner, app(tmp_path, script, replicas=2, WHERE=str(where)), dashboard)
    assert ended(runner, handle).state == AppState.SUCCEEDED
    assert sorted(path.name for path in where.iterdir()) == ["0", "1"]
    assert all(path.read_text() for path in where.iterdir())


def test_a_job_that_fails_says_so(runner: Runner, dashboard: str, tmp_path: Path) -> None:
    handle = submit(runner, app(tmp_path, "raise SystemExit(3)"), dashboard)
    assert ended(runner, handle).state == AppState.FAILED


def test_a_job_is_cancelled(runner: Runner, dashboard: str, tmp_path: Path) -> None:
    handle = submit(runner, app(tmp_path, "import time; time.sleep(600)"), dashboard)
    deadline = time.monotonic() + LIMIT_S
    while (status := runner.status(handle)) is None or status.state != AppState.RUNNING:
        assert time.monotonic() < deadline, status
        time.sleep(0.2)
    runner.cancel(handle)
    assert ended(runner, handle).state == AppState.CANCELLED


def test_jobs_are_listed(runner: Runner, dashboard: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = submit(runner, app(tmp_path, "print('listed')"), dashboard)
    ended(runner, handle)
    monkeypatch.setenv("RAY_ADDRESS", f"http://{dashboard}")
    assert handle.rpartition("/")[2] in [listed.app_id for listed in runner.list("ray")]
