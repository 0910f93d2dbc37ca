"""`oxiray doctor`: what it checks, when it warns, and what it says to do."""

from __future__ import annotations

import importlib.metadata
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import commands
import pytest
from oxiray import _doctor

HOSTS = Path(__file__).resolve().parent.parent / "fixtures" / "hosts"
CHECKS = {
    "Python", "Oxiray", "program", "import ray", "devices", "memory", "processors", "processes", "open files", "sessions",
    "kernel", "memfd_create", "pidfd_open", "control groups", "cluster",
}  # fmt: skip


def doctor(*arguments: str, **environment: str) -> dict[str, Any]:
    """What `oxiray doctor --json` says, by check."""
    command = [sys.executable, "-c", commands._PROGRAM, "doctor", "--json", *arguments]
    variables = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | environment
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=variables)
    told = json.loads(done.stdout)
    assert told["ok"] == all(one["is_ok"] for one in told["checks"]) == (done.returncode == 0)
    by_check = {one["check"]: one for one in told["checks"]}
    assert all(bool(one["advice"]) != one["is_ok"] for one in told["checks"]), "a warning says what to do, and nothing else does"
    return by_check


def test_each_subject_has_its_check() -> None:
    found = doctor()
    assert CHECKS <= set(found)
    assert found["program"]["is_ok"] and found["program"]["found"].startswith(f"{_doctor.VERSION}, ")
    assert "is Oxiray, by the alias" in found["import ray"]["found"]


def test_people_read_a_line_for_each_check() -> None:
    findings = [
        _doctor.Finding("memory", True, "plenty"),
        _doctor.Finding("open files", False, "12 " * 40, "Raise it, and do not wait: " + "again " * 20),
    ]
    text = _doctor.in_words(findings)
    assert text.splitlines()[0] == "ok       memory      plenty"
    assert text.splitlines()[1].startswith("warning  open files  12 12")
    assert "Raise it" in text and text.endswith("\n1 warning.")
    assert max(map(len, text.splitlines())) <= 80
    assert _doctor.in_words(findings[:1]).endswith("Everything is as it should be.")


def test_a_program_of_another_version_is_told(tmp_path: Path) -> None:
    other = tmp_path / "oxiray"
    other.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "oxiray 9.9.9 (of tests)"\nexit 0\n')
    other.chmod(0o755)
    wrong = doctor_of_versions(other)
    assert not wrong.is_ok and "9.9.9" in wrong.found and "OXIRAY_BINARY" in wrong.advice
    missing = doctor_of_versions(tmp_path / "none")
    assert not missing.is_ok and "cannot be run" in missing.found


def doctor_of_versions(binary: Path) -> _doctor.Finding:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OXIRAY_BINARY", str(binary))
        return next(one for one in _doctor._versions() if one.check == "program")


def test_ray_over_the_alias_is_told(tmp_path: Path) -> None:
    # As pip leaves it: Ray's files where the alias was, and the alias's own module beside them.
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").write_text("raise AssertionError('it is not imported')")
    (tmp_path / "ray-2.60.0.dist-info").mkdir()
    found = doctor(PYTHONPATH=str(tmp_path))["import ray"]
    assert not found["is_ok"] and f"{tmp_path}/ray/__init__.py" in found["found"]
    assert "pip uninstall ray" in found["advice"]


@pytest.mark.parametrize(
    ("distribution", "says"),
    [("oxiray-ray-alias", "the alias 1.0"), ("ray", "the distribution of `oxiray ray install` 1.0")],
)
def test_whatever_brought_the_name_is_told(monkeypatch: pytest.MonkeyPatch, distribution: str, says: str) -> None:
    def version(name: str) -> str:
        if name != distribution:
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(_doctor.importlib.metadata, "version", version)
    assert _doctor._who_brought_the_name() == says


def test_without_the_alias_the_program_imports_oxiray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_doctor.importlib.util, "find_spec", lambda name: None)
    (found,) = _doctor._whose_ray()
    assert found.is_ok and "import oxiray as ray" in found.found


def test_devices_are_those_of_oxiray_hardware() -> None:
    mixed = doctor(OXIRAY_HOST_ROOT=str(HOSTS / "mixed"))["devices"]
    assert mixed["is_ok"] and "GPU: 2 x H100" in mixed["found"] and "neuron_cores: 2" in mixed["found"]
    without = doctor(OXIRAY_HOST_ROOT=str(HOSTS / "nvidia-no-driver"))["devices"]
    assert not without["is_ok"] and "2 NVIDIA devices that no process can open" in without["found"]


def test_devices_that_the_kernel_cannot_fence_are_told() -> None:
    fences = {"Landlock": {"works": False, "reason": "no"}, "cgroup v2": {"works": False, "reason": "no"}}
    (found,) = _doctor._isolation(fences, has_devices=True)
    assert not found.is_ok and "Landlock" in found.advice
    assert list(_doctor._isolation(fences, has_devices=False)) == []
    (works,) = _doctor._isolation(fences | {"cgroup v1": {"works": True, "reason": None}}, has_devices=True)
    assert works.is_ok and "cgroup v1" in works.found


def test_few_open_files_are_told() -> None:
    command = [sys.executable, "-c", commands._PROGRAM, "doctor", "--json"]
    lowered = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))  # noqa: E731
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, preexec_fn=lowered)
    found = {one["check"]: one for one in json.loads(done.stdout)["checks"]}["open files"]
    assert found == {"check": "open files", "is_ok": False, "found": "256 (`ulimit -Hn`)", "advice": found["advice"]}
    assert "ulimit -n 65536" in found["advice"] and done.returncode == 1


def test_limits_of_control_groups_are_told() -> None:
    level = {"limit": 600 << 20, "used": 100 << 20, "source": "/sys/fs/cgroup/memory.max"}
    host = {"limit": 64 << 30, "used": 1 << 30, "source": "/proc/meminfo"}
    limits = {"memory": [host, level], "cpu": {"limit": 1.5, "source": "/cpu.max"}, "pids": {"limit": 512.0, "source": "/pids.max"}}
    found = {one.check: one for one in _doctor._limits(limits)}
    assert found["memory"].found == "600 MiB, 500 MiB of it are free (/sys/fs/cgroup/memory.max)" and not found["memory"].is_ok
    assert "limited to 1.5 (/cpu.max)" in found["processors"].found
    assert found["processes"].found == "512 (control group)" and not found["processes"].is_ok
    assert next(iter(_doctor._limits({"memory": [host]}))).is_ok


def test_the_folder_of_sessions_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OXIRAY_TMPDIR", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "none"))
    assert not next(_doctor._files()).is_ok
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    full = shutil._ntuple_diskusage(100 << 30, 97 << 30, 3 << 30)
    monkeypatch.setattr(_doctor.shutil, "disk_usage", lambda _: full)
    sessions = next(_doctor._files())
    assert not sessions.is_ok and "3 GiB free, 97 % full" in sessions.found and "--object-spilling-directory" in sessions.advice
    monkeypatch.setenv("RAY_local_fs_capacity_threshold", "0.99")
    assert next(_doctor._files()).is_ok


def test_what_the_kernel_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    found = {one.check: one for one in _doctor._kernel()}
    assert found["memfd_create"].is_ok and not found["pidfd_open"].is_ok
    assert "Operation not permitted" in found["pidfd_open"].found and "seccomp" in found["pidfd_open"].advice


def test_a_head_that_is_named_is_tried() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        closed = doctor("--address", f"127.0.0.1:{port}")["cluster"]
        assert not closed["is_ok"] and "cannot be reached" in closed["found"] and "--node-ip-address" in closed["advice"]
        listening.listen()
        reached = doctor("--address", f"127.0.0.1:{port}")["cluster"]
        assert not reached["is_ok"] and "can be reached" in reached["found"] and "--token-file" in reached["advice"]
    nameless = doctor("--address", "auto")["cluster"]
    assert not nameless["is_ok"] and "oxiray start --head" in nameless["advice"]


def test_a_cluster_that_answers_is_told(cluster: Any) -> None:
    context = cluster(num_cpus=1)
    address = context.address_info["address"]
    assert doctor("--address", address)["cluster"]["found"] == f"{address} answers"
    assert doctor(RAY_ADDRESS=address)["cluster"]["found"] == f"{address} answers"
