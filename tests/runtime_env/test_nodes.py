"""Environments on a node that is not the driver's own."""

from __future__ import annotations

import sys

import pytest
import ray
from ray.cluster_utils import Cluster

pytestmark = pytest.mark.timeout(100)


def test_an_environment_is_there_on_every_node(place, wheels, tmp_path) -> None:
    (tmp_path / "own_module.py").write_text("VALUE = 41\n")
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1, resources={"member": 4})
        cluster.connect()

        @ray.remote(resources={"member": 1})
        def look():
            import own_module

            return own_module.VALUE, ray.get_runtime_context().get_node_id(), sys.executable

        @ray.remote(resources={"member": 1})
        def version():
            import tinyone

            return tinyone.VERSION

        member = next(node["NodeID"] for node in ray.nodes() if node["Resources"].get("member"))
        for more in ({}, {"preload": ["own_module"]}):
            asked = {"working_dir": str(tmp_path), **more}
            assert ray.get(look.options(runtime_env=asked).remote(), timeout=60)[:2] == (41, member)
        assert ray.get(version.options(runtime_env=wheels.pip("tinyone==2.0")).remote(), timeout=90) == "2.0"
    finally:
        cluster.shutdown()
