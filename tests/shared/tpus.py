"""Clusters with slices of TPUs, by a machine that was recorded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

RECORDED = Path(__file__).resolve().parent.parent / "fixtures" / "hosts" / "tpu-v4"


def start_slices(folder: Path) -> Cluster:
    """The slices `alpha` and `beta` of topology 2x2x2, each of two hosts, which joined in no order, beside a head without devices."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    with pytest.MonkeyPatch.context() as patch:
        for name, host in (("beta", "1"), ("alpha", "1"), ("beta", "0"), ("alpha", "0")):
            root = folder / f"{name}-{host}"
            shutil.copytree(RECORDED, root)
            recorded = json.loads((root / "host.json").read_text())
            recorded["environment"] |= {"TPU_NAME": name, "TPU_WORKER_ID": host}
            (root / "host.json").write_text(json.dumps(recorded))
            patch.setenv("OXIRAY_HOST_ROOT", str(root))
            # A second node of one machine takes no devices of itself.
            cluster.add_node(num_cpus=1, resources={"TPU": 4})
    return cluster


def cluster_of_slices(folder: Path, request: pytest.FixtureRequest) -> Cluster:
    """Such a cluster, to which the calling test is connected, and which ends with that test."""
    ray.shutdown()
    cluster = start_slices(folder)
    request.addfinalizer(cluster.shutdown)
    request.addfinalizer(ray.shutdown)
    ray.init(address=cluster.address)
    return cluster
