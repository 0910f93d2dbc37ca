"""Lines on a run tell how much its devices are used, as the vendor's library says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nvml
import pytest
import ray
from oxiray.train import _use
from ray import train
from ray.cluster_utils import Cluster

GIB = 1 << 30


@pytest.fixture(scope="module")
def library() -> str:
    """The library that answers as NVML does."""
    return nvml.library()


def test_lines_tell_the_use_of_devices_on_other_machines(
    fit, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, capfd
) -> None:
    answers = nvml.Answers(tmp_path, monkeypatch, library)

    def write(busy: int) -> None:
        cards = [f"NVIDIA H100 80GB HBM3|GPU-{slot}||{80 * GIB}|{(slot + 1) * GIB}|||{busy + slot}" for slot in range(8)]
        answers.write("\n".join(cards))

    write(80)
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
    request.addfinalizer(cluster.shutdown)
    request.addfinalizer(ray.shutdown)
    cluster.add_node(num_cpus=2, num_gpus=8)
    ray.init(address=cluster.address)
    stop = tmp_path / "stop"
    said: list[str] = []

    class Listening(train.UserCallback):
        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            said.append(capfd.readouterr().err)
            text = "".join(said)
            if "(GPU 0 80% busy, 1 of 80 GiB; GPU 1 81% busy, 2 of 80 GiB)" in text:
                write(10)
            if "(GPU 0 10% busy, 1 of 80 GiB; GPU 1 11% busy, 2 of 80 GiB)" in text:
                stop.touch()

    def function() -> int:
        import time

        reports = 0
        until = time.monotonic() + 60
        while not train.collective.broadcast_from_rank_zero(stop.exists() or time.monotonic() > until):
            reports += 1
            train.report({"reports": reports})
            time.sleep(0.05)
        return reports

    fit(function, scaling=train.ScalingConfig(num_workers=2, use_gpu=True), callbacks=[Listening()])
    assert stop.exists(), "".join(said)


def one(slot: int, busy: int | None, used: int | None = None) -> dict[str, Any]:
    return {"resource": "GPU", "id": str(slot), "busy_percent": busy, "used_bytes": used, "total_bytes": used and 80 * GIB}


def test_what_is_not_told_is_left_out_and_many_are_told_together() -> None:
    nodes = [
        {"node_id": "a", "devices": [one(0, 50, GIB), one(1, None, GIB), one(2, 7), one(3, 99, GIB)]},
        {"node_id": "b", "devices": [one(slot, 10 + slot, (slot + 1) * GIB) for slot in range(8)]},
        {"node_id": "c"},
    ]
    some = {("a", "GPU", "0"), ("a", "GPU", "1"), ("a", "GPU", "2"), ("c", "GPU", "0")}
    assert _use.told(nodes, some) == "GPU 0 50% busy, 1 of 80 GiB; GPU 1 1 of 80 GiB; GPU 2 7% busy"
    everything = {("b", "GPU", str(slot)) for slot in range(8)}
    assert _use.told(nodes, everything) == "8 GPU 10-17% busy, at most 8 of 80 GiB"
    assert _use.told(nodes, {("c", "GPU", "0")}) == ""
