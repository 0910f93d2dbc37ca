"""Workers on TPUs are placed on whole slices, by machines that were recorded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import ray
from oxiray._slices import Slice
from ray import train
from ray.cluster_utils import Cluster
from ray.train import ScalingConfig
from ray.train.v2.jax import JaxTrainer
from tpus import cluster_of_slices

STAND_INS = Path(__file__).parent / "stand_ins"
HEAD = "TPU-v4-16-head"


@pytest.fixture
def slices(tmp_path: Path, request: pytest.FixtureRequest) -> Cluster:
    """Two slices of two hosts, which joined in no order."""
    return cluster_of_slices(tmp_path, request)


def look() -> dict[str, Any]:
    """Where this rank is, and what it was told of the slices."""
    labels = {node["NodeID"]: node["Labels"] for node in ray.nodes()}[ray.get_runtime_context().get_node_id()]
    told = {name.removeprefix("MEGASCALE_"): value for name, value in os.environ.items() if name.startswith("MEGASCALE_")}
    return {
        "host": (labels["ray.io/tpu-slice-name"], labels["ray.io/tpu-worker-id"]), "told": told,
        "chips": os.environ.get("TPU_VISIBLE_CHIPS"), "platform": os.environ["JAX_PLATFORMS"],
        "heads": ray.available_resources().get(HEAD, 0),
    }  # fmt: skip


def test_groups_take_whole_slices_in_order(fit, slices: Cluster) -> None:
    seen: list[dict[str, Any]] = []

    class Noting(train.UserCallback):
        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            seen[:] = metrics

    environment = {"env_vars": {"PYTHONPATH": str(STAND_INS), "MEGASCALE_NUM_SLICES": "7"}, "py_modules": [str(STAND_INS / "jax")]}
    scaling = ScalingConfig(num_workers=4, use_tpu=True, topology="2x2x2", accelerator_type="TPU-V4")

    def function() -> None:
        train.report(look())

    options = {"trainer": JaxTrainer, "environment": environment, "callbacks": [Noting()]}
    fit(function, scaling=scaling, **options)
    assert [one["host"] for one in seen] == [("alpha", "0"), ("alpha", "1"), ("beta", "0"), ("beta", "1")]
    assert [(one["told"]["NUM_SLICES"], one["told"]["SLICE_ID"]) for one in seen] == [("2", "0"), ("2", "0"), ("2", "1"), ("2", "1")]
    assert len({one["told"]["COORDINATOR_ADDRESS"] for one in seen}) == 1
    assert {one["heads"] for one in seen} == {0} and {one["platform"] for one in seen} == {"tpu"}

    # A slice that somebody else has is not taken apart: of two to four workers, the two of the other slice train.
    taken = ray.util.placement_group([{HEAD: 1}], bundle_label_selector=[{"ray.io/tpu-slice-name": "alpha"}])
    assert taken.wait(60)
    elastic = ScalingConfig(num_workers=(2, 4), use_tpu=True, topology="2x2x2", accelerator_type="TPU-V4")
    fit(function, name="elastic", scaling=elastic, **options)
    assert [one["host"] for one in seen] == [("beta", "0"), ("beta", "1")]
    assert seen[0]["told"] == {"NUM_SLICES": "7"}, "one slice needs no words between slices"

    other = ScalingConfig(num_workers=4, use_tpu=True, topology="2x2x4", accelerator_type="TPU-V4")
    with pytest.raises(train.ControllerError, match="1 TPU slices of topology 2x2x4 are not placed.*TPU-v4-32-head"):
        fit(function, name="other", scaling=other, **options)


@pytest.mark.parametrize(
    ("topology", "kind", "chips", "host", "head"),
    [
        ("2x2x2", "TPU-V4", 8, 4, "TPU-v4-16-head"),
        ("4x4", "v5litepod", 16, 4, "TPU-v5litepod-16-head"),
        ("2x4", "TPU-V6E", 8, 8, "TPU-v6e-8-head"),
        ("2x2x1", "TPU7x", 4, 4, "TPU-v7x-8-head"),
    ],
)
def test_topologies(topology: str, kind: str, chips: int, host: int, head: str) -> None:
    found = Slice.of(topology, kind)
    assert (found.chips, found.chips_per_host, found.head) == (chips, host, head)
