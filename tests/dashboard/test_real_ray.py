"""The jobs API as Ray 2.60's own programs ask it, and Ray's as ours does; KubeRay's submitter with either command.

Ray is what `make bench` installs; where it is absent these tests are skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard_client import TOKEN, Dashboard
from homes import free_port
from oxiray._cli import native_binary
from watching import wait_until

HERE = Path(__file__).parent
RAY = HERE.parent.parent / ".build" / "ray" / "bin"
pytestmark = pytest.mark.timeout(300)
needs_ray = pytest.mark.skipif(not (RAY / "ray").exists(), reason="Ray's wheel is absent: `make bench` installs it into .build/ray")


def environment(dashboard: Dashboard) -> dict[str, str]:
    kept = {name: value for name, value in dashboard.home.environment.items() if name not in ("RAY_ADDRESS", "OXIRAY_TMPDIR")}
    return {**kept, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}


def run(command: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables, timeout=240)


@needs_ray
def test_rays_client_finds_every_method(dashboard: Dashboard) -> None:
    done = run([str(RAY / "python"), str(HERE / "real_client.py"), dashboard.url], environment(dashboard))
    assert (done.returncode, done.stdout) == (0, "all methods answer\n"), done.stdout + done.stderr


@needs_ray
def test_rays_command_submits_follows_and_lists(dashboard: Dashboard, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("import sys; print('hi'); sys.exit(int(sys.argv[1]))\n")

    def ray(*words: str) -> subprocess.CompletedProcess[str]:
        return run([str(RAY / "ray"), "job", words[0], "--address", dashboard.url, *words[1:]], environment(dashboard))

    submit = ("submit", "--working-dir", str(tmp_path))
    done = ray(*submit, "--submission-id", "cli", "--", "python", "x.py", "0")
    assert done.returncode == 0 and "\nhi\n" in done.stdout and "succeeded" in done.stdout, done.stdout + done.stderr
    assert ray(*submit, "--", "python", "x.py", "3").returncode == 1
    assert "succeeded" in ray("status", "cli").stdout
    assert "Please use a different submission_id" in ray("submit", "--submission-id", "cli", "--no-wait", "--", "true").stderr
    assert "submission_id='cli'" in ray("list").stdout


@needs_ray
def test_kuberays_submitter_runs_with_rays_command(dashboard: Dashboard) -> None:
    variables = {**environment(dashboard), "PATH": f"{RAY}:{os.environ['PATH']}"}
    submitter = ["sh", str(HERE / "kuberay_submitter.sh"), dashboard.url]
    for _ in range(2):
        # The pod may be made anew: the job runs once.
        done = run([*submitter, "kuberay-theirs", "echo", "told"], variables)
        assert done.returncode == 0 and done.stdout.count("told") == 1, done.stdout + done.stderr


def test_kuberays_submitter_runs_with_our_command(dashboard: Dashboard, tmp_path: Path) -> None:
    (tmp_path / "ray").write_text(f'#!/bin/sh\nexec "{native_binary()}" "$@"\n')
    (tmp_path / "ray").chmod(0o755)
    (tmp_path / "python").symlink_to(sys.executable)
    variables = {**environment(dashboard), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for _ in range(2):
        done = run(["sh", str(HERE / "kuberay_submitter.sh"), dashboard.url, "kuberay-ours", "echo", "told"], variables)
        assert done.returncode == 0 and done.stdout.count("told") == 1, done.stdout + done.stderr


def test_our_command_asks_over_http(dashboard: Dashboard, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("import sys; print('hi'); sys.exit(int(sys.argv[1]))\n")

    def job(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(native_binary()), "job", words[0], f"--address={dashboard.url}", *words[1:]]
        return run(command, environment(dashboard))

    submit = ("submit", f"--working-dir={tmp_path}")
    done = job(*submit, "--submission-id=ours", "--", "python", "x.py", "0")
    assert (done.returncode, done.stdout) == (0, "hi\n"), done.stderr
    failed = job(*submit, "--", "python", "x.py", "3")
    assert failed.returncode == 1 and "exit code 3" in failed.stderr
    assert job("logs", "ours").stdout == "hi\n"
    assert job("status", "ours").stdout == "Job ours SUCCEEDED: Job finished successfully.\n"
    assert "ours  SUCCEEDED  python x.py 0" in job("list").stdout
    assert job("submit", "--no-wait", "--submission-id=long", "--", "sleep", "600").returncode == 0
    assert job("stop", "long").stdout.startswith("Job long STOPPED")
    assert job("delete", "long").stdout == "Job long is deleted.\n"
    absent = job("status", "long")
    assert absent.returncode == 1 and "Job long does not exist" in absent.stderr
    refused = run([str(native_binary()), "job", "list", f"--address={dashboard.url}"], {**environment(dashboard), "RAY_AUTH_TOKEN": ""})
    assert refused.returncode == 1 and "401" in refused.stderr
    headers = ["--headers", f'{{"Authorization": "Bearer {TOKEN}"}}']
    told = run(
        [str(native_binary()), "job", "list", f"--address={dashboard.url}", *headers], {**environment(dashboard), "RAY_AUTH_TOKEN": ""}
    )
    assert told.returncode == 0, told.stderr


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/version", timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture
def rays_head() -> Iterator[str]:
    """A head of Ray's with its dashboard. Its folder has a short name: sockets lie in it."""
    port, gcs = free_port(), free_port()
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "OXIRAY_"))}
    # Otherwise it asks for a token where this user has one of Ray's.
    variables["RAY_AUTH_MODE"] = "disabled"
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as folder:
        command = [
            str(RAY / "ray"), "start", "--head", "--block", "--num-cpus=1", f"--port={gcs}", f"--dashboard-port={port}",
            "--include-dashboard=true", f"--temp-dir={folder}", "--disable-usage-stats", "--object-store-memory=80000000",
            f"--dashboard-agent-listen-port={free_port()}", f"--metrics-export-port={free_port()}",
        ]  # fmt: skip
        with open(Path(folder) / "output", "wb") as output:
            head = subprocess.Popen(command, env=variables, stdout=output, stderr=output, start_new_session=True)
        try:
            wait_until(lambda: answers(port), timeout=200)
            yield f"http://127.0.0.1:{port}"
        finally:
            head.terminate()
            head.wait(60)


@needs_ray
def test_our_client_finds_every_method_of_rays(rays_head: str) -> None:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = run([sys.executable, str(HERE / "our_client.py"), rays_head], variables)
    assert (done.returncode, done.stdout) == (0, "all methods answer\n"), done.stdout + done.stderr
