"""How programs and commands find the cluster that runs on this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from oxiray._cli import native_binary


def oxiray(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(native_binary()), *words], capture_output=True, text=True, check=False)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where this user's sessions are, for the length of a test."""
    folder = tempfile.mkdtemp(prefix="oxi-")
    monkeypatch.setenv("OXIRAY_TMPDIR", folder)
    ray.shutdown()
    yield Path(folder) / f"oxiray-{os.geteuid()}"
    ray.shutdown()
    oxiray("stop")
    shutil.rmtree(folder, ignore_errors=True)


def test_a_cluster_that_lies_elsewhere_is_found(home: Path, tmp_path: Path) -> None:
    started = oxiray("start", "--head", "--num-cpus=3", f"--temp-dir={tmp_path}")
    assert started.returncode == 0, started
    context = ray.init(address="auto")
    assert ray.cluster_resources()["CPU"] == 3
    assert context.address_info["session_dir"].startswith(str(tmp_path))
    address = context.address_info["address"]
    ray.shutdown()
    ray.init(address=address)
    ray.shutdown()
    status = oxiray("status", "--json")
    assert status.returncode == 0 and json.loads(status.stdout)["nodes"], status
    again = oxiray("start", "--head")
    assert again.returncode != 0 and "has port 6379 already" in again.stderr
    member = oxiray("start", f"--address={address}", "--num-cpus=1", f"--temp-dir={tmp_path / 'member'}")
    assert member.returncode == 0, member
    assert oxiray("stop").returncode == 0
    assert oxiray("status").returncode != 0
    assert not list(home.glob("session_*")) and not list(tmp_path.glob("oxiray-*/session_*"))


def test_a_directory_that_others_may_write_to_is_not_looked_into(home: Path) -> None:
    assert oxiray("start", "--head", "--num-cpus=1").returncode == 0
    home.chmod(0o777)
    try:
        with pytest.raises(ConnectionError, match="no cluster of this user"):
            ray.init(address="auto")
    finally:
        home.chmod(0o700)
    ray.init(address="auto")
    assert ray.cluster_resources()["CPU"] == 1
