"""What happened: events of the cluster, and `oxiray top`, with devices that NVML's stand-in answers for."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import commands
import nvml
import pytest
from watching import wait_until

import ray
from ray.util import state
from ray.util.state.exception import RayStateApiException

GPU = "NVIDIA H100|GPU-{slot}||85899345920|0|||0\n"


@pytest.fixture(scope="module")
def library() -> str:
    return nvml.library()


@pytest.fixture
def gpus(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[nvml.Answers]:
    """A cluster of one machine with four GPUs."""
    ray.shutdown()
    monkeypatch.setenv("OXIRAY_CUDA_LIBRARY", library)
    answers = nvml.Answers(tmp_path, monkeypatch, library)
    answers.write("".join(GPU.format(slot=slot) for slot in range(4)))
    ray.init(num_cpus=4, num_gpus=4)
    wait_until(answers.are_listened_to)
    yield answers
    ray.shutdown()


def address() -> str:
    return f"--address={ray.get_runtime_context().gcs_address}"


def events(*filters: str) -> list[dict]:
    asked = [word for text in filters for word in ("--filter", text)]
    rows = json.loads(commands.run("list", "events", address(), "--format=json", "--detail", "--limit=10000", *asked))
    assert isinstance(rows, list)
    return rows


def of_devices() -> list[tuple[str, int, str]]:
    """What happened to GPUs: what, to which, and who had it."""
    entries = [row["custom_fields"] for row in events() if "device" in row["custom_fields"]]
    return [(entry["event"], entry["device"]["slot"], entry.get("name", "")) for entry in entries]


def top(*words: str) -> str:
    return commands.run("top", "--once", address(), *words)


def row_of(slot: int) -> str:
    """What is drawn of a GPU."""
    return next(line for line in top("--cols=160").splitlines() if f"GPU{slot} " in line).rstrip()


@ray.remote(num_gpus=1, num_cpus=0, max_retries=0)
def holds(mark: str) -> None:
    """Tells its process and its GPU, and holds that until it is told to end."""
    Path(mark).write_text(f"{os.getpid()} {ray.get_gpu_ids()[0]}")
    while not Path(f"{mark}.done").exists():
        time.sleep(0.02)


def test_who_held_a_device_is_told_from_the_grant_until_it_is_free(gpus: nvml.Answers, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    task = holds.remote(str(mark))
    wait_until(lambda: mark.exists() and " " in mark.read_text())
    pid, slot = map(int, mark.read_text().split())
    wait_until(lambda: ("device_granted", slot, "holds") in of_devices())
    # The last of the cells that stand for the past minute is the second that has just ended.
    wait_until(lambda: row_of(slot).endswith("h"))
    assert "##########" in row_of(slot) and "holds" in row_of(slot)
    assert "devices held 1" in top().splitlines()[0]
    told = json.loads(commands.run("top", "--json", address()))
    spans = [span for *_, of, story in told["devices"] if of == slot for span in story["spans"]]
    assert [(span["name"], span["pid"], span["share"]) for span in spans] == [("holds", pid, 10_000)]
    (tmp_path / "mark.done").touch()
    ray.get(task, timeout=60)
    wait_until(lambda: ("device_free", slot, "holds") in of_devices())
    happened = [what for what, of, name in of_devices() if of == slot and name == "holds"]
    assert happened[0] == "device_granted" and happened[-2:] == ["device_returning", "device_free"], happened
    assert "devices held 0" in top().splitlines()[0]


def test_a_device_out_of_service_and_a_worker_that_was_killed_are_events(gpus: nvml.Answers, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    task = holds.remote(str(mark))
    wait_until(lambda: mark.exists() and " " in mark.read_text())
    pid, slot = map(int, mark.read_text().split())
    other = (slot + 1) % 4
    node = ray.get_runtime_context().get_node_id()
    commands.run("device", "drain", f"{node}/{other}", "--reason=it is looked at", address())
    wait_until(lambda: ("device_out_of_service", other, "") in of_devices())
    assert any(row["severity"] == "ERROR" and "it is looked at" in row["message"] for row in events("source_type=RAYLET"))
    wait_until(lambda: row_of(other).endswith("x"))
    assert " out " in row_of(other)
    told = json.loads(commands.run("top", "--json", address()))
    reasons = [story["out"][1] for *_, of, story in told["devices"] if of == other]
    assert len(reasons) == 1 and "it is looked at" in reasons[0], reasons
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ray.exceptions.WorkerCrashedError):
        ray.get(task, timeout=60)
    wait_until(lambda: ("device_free", slot, "holds") in of_devices())
    wait_until(lambda: "worker_died" in top("--view=events", "--cols=160", "--rows=40"))


def test_jobs_and_the_head_are_events_with_rays_columns(gpus: nvml.Answers) -> None:
    rows = events()
    assert rows[0]["custom_fields"]["event"] == "head_started"
    assert set(rows[0]) == {"severity", "time", "source_type", "message", "event_id", "custom_fields"}
    assert [row["custom_fields"]["event"] for row in events("source_type=JOBS")] == ["job_started"]
    assert len({row["event_id"] for row in rows}) == len(rows)
    listed = state.list_cluster_events(detail=True, limit=10_000)
    assert [dataclasses.asdict(row) for row in listed] == rows
    [started] = state.list_cluster_events(filters=[("source_type", "=", "JOBS")])
    assert started.severity == "INFO" and started["message"] and started.custom_fields is None
    assert state.list_cluster_events(limit=1)[0].event_id == rows[-1]["event_id"]
    with pytest.raises(RayStateApiException, match="colour"):
        state.list_cluster_events(filters=[("colour", "=", "red")])
    frame = top("--cols=100", "--rows=30")
    assert len(frame.splitlines()) <= 30 and all(len(line) <= 100 for line in frame.splitlines())
    refused = commands.run("list", "events", address(), "--filter", "colour=red", check=False)
    assert "events have the columns severity, time" in refused
