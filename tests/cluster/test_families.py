"""A cluster of machines with different accelerators, and one with none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import ray
from ray.cluster_utils import Cluster
from ray.util import placement_group, placement_group_table, remove_placement_group


@pytest.fixture(scope="module")
def families() -> Iterator[dict[str, str]]:
    """The node of each family by its resource, and the head, which has processors only."""
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4})
    nodes = {"GPU": cluster.add_node(num_cpus=4, num_gpus=2, resources={"accelerator_type:H100": 1})}
    nodes["TPU"] = cluster.add_node(num_cpus=4, resources={"TPU": 4, "accelerator_type:TPU-V5P": 1})
    nodes["neuron_cores"] = cluster.add_node(num_cpus=4, resources={"neuron_cores": 2})
    cluster.connect()
    assert cluster.head_node is not None
    yield {"head": cluster.head_node.node_id, **{name: node.node_id for name, node in nodes.items()}}
    cluster.shutdown()


@ray.remote(num_cpus=0)
def where() -> str:
    return ray.get_runtime_context().get_node_id()


def test_each_family_is_found(families: dict[str, str]) -> None:
    asked = {
        "GPU": [{"num_gpus": 2}, {"num_gpus": 0.3}, {"accelerator_type": "H100"}],
        "TPU": [{"resources": {"TPU": 4}}, {"resources": {"TPU": 1}}, {"accelerator_type": "TPU-V5P"}],
        "neuron_cores": [{"resources": {"neuron_cores": 2}}, {"resources": {"neuron_cores": 1}}],
    }
    for family, every in asked.items():
        for options in every:
            assert ray.get(where.options(**options).remote(), timeout=60) == families[family], (family, options)


def test_work_without_accelerators_keeps_off_machines_that_have_them(families: dict[str, str]) -> None:
    found = ray.get([where.options(num_cpus=1).remote() for _ in range(4)], timeout=60)
    assert set(found) == {families["head"]}
    # More than the head has: the others take it before anybody waits.
    assert ray.get(where.options(num_cpus=4, label_selector={"ray.io/node-id": families["TPU"]}).remote(), timeout=60)


def test_a_group_spans_families(families: dict[str, str]) -> None:
    group = placement_group([{"TPU": 4}, {"GPU": 1}, {"neuron_cores": 2}, {"CPU": 1}], strategy="SPREAD")
    ray.get(group.ready(), timeout=60)
    table = placement_group_table(group)["bundles_to_node_id"]
    assert [table[index] for index in range(3)] == [families[name] for name in ("TPU", "GPU", "neuron_cores")]
    remove_placement_group(group)
