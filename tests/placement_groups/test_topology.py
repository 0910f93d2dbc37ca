"""`topology_strategy`: all machines of a group have a label with one value."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ray
import ray.util.state
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

DOMAIN = "ray.io/gpu-domain"


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Cluster]:
    """Two domains of two and three machines with a GPU each, and one machine outside of any."""
    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    for labels in ({}, *({DOMAIN: "small"},) * 2, *({DOMAIN: "large"},) * 3):
        started.add_node(num_cpus=1, num_gpus=1, labels=labels)
    started.wait_for_nodes()
    started.connect()
    yield started
    ray.shutdown()
    started.shutdown()


def domains(bundles: int, strategy: dict[str, str]) -> list[str]:
    """Where the bundles of a new group are."""
    group = placement_group([{"GPU": 1}] * bundles, topology_strategy=strategy)
    ray.get(group.ready(), timeout=30)

    @ray.remote(num_gpus=1, num_cpus=0)
    def domain() -> str:
        return ray.get_runtime_context().get_node_labels().get(DOMAIN, "none")

    within = [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index) for index in range(bundles)]
    found = ray.get([domain.options(scheduling_strategy=strategy).remote() for strategy in within], timeout=60)
    remove_placement_group(group)
    return found


def test_a_group_is_within_one_domain_the_smallest_that_has_room() -> None:
    assert domains(2, {DOMAIN: "STRICT_PACK"}) == ["small"] * 2
    assert domains(3, {DOMAIN: "STRICT_PACK", "ray.io/node-id": "STRICT_SPREAD"}) == ["large"] * 3
    assert len(domains(6, {"ray.io/node-id": "SPREAD"})) == 6, "without a domain all machines may be taken"


def test_what_no_domain_can_hold_says_how_large_they_are() -> None:
    group = placement_group([{"GPU": 1}] * 4, topology_strategy={DOMAIN: "STRICT_PACK"})
    assert not group.wait(timeout_seconds=1)
    reason = ray.util.explain(group)["reason"]
    assert "`large` has 3 machines, `small` has 2 machines; 2 without that label do not count" in reason, reason
    row = ray.util.state.get_placement_group(group.id.hex())
    assert row is not None and row["topology_strategy"] == {DOMAIN: "STRICT_PACK"}
    remove_placement_group(group)


def test_a_group_that_waits_for_a_domain_is_served_when_there_is_room() -> None:
    first = placement_group([{"GPU": 1}] * 3, topology_strategy={DOMAIN: "STRICT_PACK"})
    ray.get(first.ready(), timeout=30)
    second = placement_group([{"GPU": 1}] * 3, topology_strategy={DOMAIN: "STRICT_PACK"})
    assert not second.wait(timeout_seconds=1), "three GPUs are free, and not in one domain"
    remove_placement_group(first)
    assert second.wait(timeout_seconds=30)
    remove_placement_group(second)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"strategy": "PACK", "topology_strategy": {}}, "cannot both be specified"),
        ({"topology_strategy": [DOMAIN]}, "must be a dict, got list"),
        ({"topology_strategy": {"": "STRICT_PACK"}}, "keys must be non-empty strings"),
        ({"topology_strategy": {DOMAIN: "TOGETHER"}}, "Invalid topology strategy 'TOGETHER'"),
        ({"topology_strategy": {DOMAIN: "SPREAD"}}, "is not supported yet"),
        ({"topology_strategy": {DOMAIN: "STRICT_PACK", "rack": "STRICT_PACK"}}, "at most one topology label"),
    ],
)
def test_strategies_that_are_none_are_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        placement_group([{"GPU": 1}], **options)  # type: ignore[arg-type]
