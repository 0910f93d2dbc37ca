"""Programs of scheduling: resources, placement groups, strategies, and labels."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import ActorUnschedulableError, RayActorError, TaskUnschedulableError
from ray.util.placement_group import (
    PlacementGroup,
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import (
    DoesNotExist,
    Exists,
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
    PlacementGroupSchedulingStrategy,
)

pytestmark = pytest.mark.usefixtures("session")
Eventually = Callable[..., Any]


@ray.remote
def group_of() -> str | None:
    return ray.get_runtime_context().get_placement_group_id()


@ray.remote(num_cpus=0)
class Held:
    def resources(self) -> dict[str, float]:
        return ray.get_runtime_context().get_assigned_resources()

    def gpus(self) -> list[Any]:
        return ray.get_gpu_ids()

    def group(self) -> str | None:
        return ray.get_runtime_context().get_placement_group_id()


@pytest.fixture
def make() -> Any:
    """Makes placement groups that are removed with the test."""
    made: list[PlacementGroup] = []

    def make(*arguments: Any, **named: Any) -> PlacementGroup:
        made.append(placement_group(*arguments, **named))
        return made[-1]

    yield make
    for group in made:
        remove_placement_group(group)


def test_fractions_of_a_processor_add_up(tmp_path: Path, eventually: Eventually) -> None:
    @ray.remote(num_cpus=0.5)
    def meet(folder: Path, index: int) -> int:
        (folder / str(index)).write_text("")
        while len(list(folder.iterdir())) < 6:
            time.sleep(0.01)
        return index

    assert sorted(ray.get([meet.remote(tmp_path, index) for index in range(6)], timeout=100)) == list(range(6))


def test_four_actors_share_one_device() -> None:
    actors = [Held.options(num_gpus=0.25).remote() for _ in range(4)]
    assert len({str(ids) for ids in ray.get([actor.gpus.remote() for actor in actors])}) == 1


def test_devices_of_two_actors_differ() -> None:
    actors = [Held.options(num_gpus=1).remote() for _ in range(2)]
    assert sorted(sum(ray.get([actor.gpus.remote() for actor in actors]), [])) == [0, 1]


def test_an_actor_knows_what_it_holds() -> None:
    held = Held.options(num_cpus=1, num_gpus=0.5, resources={"part": 2}).remote()
    assert ray.get(held.resources.remote()) == {"CPU": 1.0, "GPU": 0.5, "part": 2.0}


def test_what_an_actor_holds_comes_back_when_it_ends(eventually: Eventually) -> None:
    held = Held.options(resources={"part": 8}).remote()
    ray.get(held.resources.remote())
    assert ray.available_resources().get("part", 0) == 0
    ray.kill(held)
    eventually(lambda: ray.available_resources().get("part") == 8)


def test_an_actor_takes_a_processor_to_be_placed_and_none_to_live() -> None:
    @ray.remote
    class Default:
        def resources(self) -> dict[str, float]:
            return ray.get_runtime_context().get_assigned_resources()

    assert ray.get(Default.remote().resources.remote()) == {}


def test_a_task_takes_one_processor_by_default() -> None:
    @ray.remote
    def own() -> dict[str, float]:
        return ray.get_runtime_context().get_assigned_resources()

    assert ray.get(own.remote()) == {"CPU": 1.0}


def test_a_group_is_waited_for_in_three_ways(make: Any) -> None:
    group = make([{"CPU": 1}])
    assert group.wait(30) is True
    assert ray.get(group.ready(), timeout=30).id == group.id
    assert ray.wait([group.ready()], timeout=30)[0]


def test_bundles_are_listed_and_counted(make: Any) -> None:
    group = make([{"CPU": 1}, {"GPU": 1, "CPU": 1}], strategy="PACK", name="counted")
    assert group.bundle_count == 2
    assert group.bundle_specs == [{"CPU": 1.0}, {"GPU": 1.0, "CPU": 1.0}]
    assert not group.is_empty


def test_a_task_runs_in_each_bundle(make: Any) -> None:
    group = make([{"CPU": 1}, {"CPU": 1}])
    for index in (0, 1, -1):
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        assert ray.get(group_of.options(scheduling_strategy=strategy).remote(), timeout=60) == group.id.hex()


def test_a_child_is_outside_of_the_group_by_default(make: Any) -> None:
    group = make([{"CPU": 2}])

    @ray.remote
    def parent() -> Any:
        return ray.get_runtime_context().get_placement_group_id(), ray.get(group_of.remote())

    strategy = PlacementGroupSchedulingStrategy(group)
    assert ray.get(parent.options(scheduling_strategy=strategy).remote()) == (group.id.hex(), None)


def test_a_child_is_within_the_group_where_it_captures(make: Any) -> None:
    group = make([{"CPU": 2}])

    @ray.remote
    def parent() -> Any:
        return ray.get(group_of.remote()), ray.get(group_of.options(scheduling_strategy="DEFAULT").remote())

    strategy = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
    captured, default = ray.get(parent.options(scheduling_strategy=strategy).remote())
    assert captured == group.id.hex()
    assert default is None


def test_the_actors_of_an_actor_that_captures_are_in_its_group(make: Any) -> None:
    group = make([{"CPU": 2}])

    @ray.remote(num_cpus=1)
    class Parent:
        def child(self) -> Any:
            return ray.get(Held.options(num_cpus=1).remote().group.remote())

        def current(self) -> Any:
            return get_current_placement_group().id.hex()

    strategy = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
    parent = Parent.options(scheduling_strategy=strategy).remote()
    assert ray.get([parent.child.remote(), parent.current.remote()]) == [group.id.hex()] * 2
    ray.kill(parent)


def test_the_driver_is_in_no_group() -> None:
    assert get_current_placement_group() is None


def test_a_group_is_found_by_name_and_its_table_tells_the_state(make: Any) -> None:
    group = make([{"CPU": 1}], name="found by name")
    group.wait(30)
    assert get_placement_group("found by name").id == group.id
    table = placement_group_table(group)
    assert (table["name"], table["state"], table["strategy"]) == ("found by name", "CREATED", "PACK")
    assert list(table["bundles"].values()) == [{"CPU": 1.0}]


def test_a_removed_group_is_in_the_table_as_removed(eventually: Eventually) -> None:
    group = placement_group([{"CPU": 1}])
    group.wait(30)
    remove_placement_group(group)
    eventually(lambda: placement_group_table(group)["state"] == "REMOVED")


def test_a_group_that_is_removed_ends_what_runs_in_it() -> None:
    group = placement_group([{"CPU": 1}])
    held = Held.options(num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote()
    ray.get(held.group.remote())
    remove_placement_group(group)
    with pytest.raises(RayActorError):
        for _ in range(1000):
            ray.get(held.group.remote(), timeout=30)
            time.sleep(0.05)


def test_a_group_that_does_not_fit_yet_waits_until_another_is_removed(make: Any) -> None:
    first = placement_group([{"part": 8}])
    assert first.wait(30)
    second = make([{"part": 8}])
    assert not second.wait(0.3)
    assert placement_group_table(second)["state"] == "PENDING"
    remove_placement_group(first)
    assert second.wait(30)


def test_an_accelerator_bundle_gives_its_device_to_the_task(make: Any) -> None:
    group = make([{"GPU": 1, "CPU": 1}])

    @ray.remote(num_gpus=1)
    def device() -> list[Any]:
        return ray.get_gpu_ids()

    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
    assert len(ray.get(device.options(scheduling_strategy=strategy).remote(), timeout=60)) == 1


def test_actors_of_one_bundle_share_its_processors(make: Any) -> None:
    group = make([{"CPU": 2}])
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
    actors = [Held.options(num_cpus=1, scheduling_strategy=strategy).remote() for _ in range(2)]
    assert ray.get([actor.group.remote() for actor in actors], timeout=60) == [group.id.hex()] * 2
    third = Held.options(num_cpus=1, scheduling_strategy=strategy).remote()
    assert not ray.wait([third.group.remote()], timeout=0.3)[0]
    ray.kill(actors[0])
    assert ray.get(third.group.remote(), timeout=60) == group.id.hex()
    for actor in (actors[1], third):
        ray.kill(actor)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (([],), {}),
        (([{}],), {}),
        (([{"CPU": 0}],), {}),
        (([{"CPU": 1}],), {"strategy": "TIGHT"}),
        (([{"CPU": 1}],), {"lifetime": "short"}),
        (({"CPU": 1},), {}),
        ((["CPU"],), {}),
        (([{"CPU": 1}],), {"bundle_label_selector": [{"a": "b"}, {"c": "d"}]}),
    ],
    ids=str,
)
def test_this_group_is_refused(arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        placement_group(*arguments, **named)


def test_a_bundle_index_that_is_out_of_range_is_refused(make: Any) -> None:
    group = make([{"CPU": 1}])
    group.wait(30)
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=3)
    with pytest.raises(ValueError):
        group_of.options(scheduling_strategy=strategy).remote()


def test_a_strategy_has_the_fields_it_was_made_with(make: Any) -> None:
    group = make([{"CPU": 1}])
    strategy = PlacementGroupSchedulingStrategy(group, 0, True)
    assert strategy.placement_group is group
    assert (strategy.placement_group_bundle_index, strategy.placement_group_capture_child_tasks) == (0, True)
    affinity = NodeAffinitySchedulingStrategy("ab" * 28, soft=True)
    assert (affinity.node_id, affinity.soft) == ("ab" * 28, True)


def test_an_affinity_takes_the_node_of_the_driver() -> None:
    @ray.remote
    def where() -> str:
        return ray.get_runtime_context().get_node_id()

    here = ray.get_runtime_context().get_node_id()
    for soft in (False, True):
        strategy = NodeAffinitySchedulingStrategy(here, soft=soft)
        assert ray.get(where.options(scheduling_strategy=strategy).remote()) == here


def test_a_soft_affinity_to_a_node_that_is_not_there_runs_elsewhere() -> None:
    strategy = NodeAffinitySchedulingStrategy("ab" * 28, soft=True)
    assert ray.get(group_of.options(scheduling_strategy=strategy).remote(), timeout=60) is None


def test_a_hard_affinity_to_a_node_that_is_not_there_fails() -> None:
    strategy = NodeAffinitySchedulingStrategy("ab" * 28, soft=False)
    with pytest.raises(TaskUnschedulableError):
        ray.get(group_of.options(scheduling_strategy=strategy).remote(), timeout=60)
    with pytest.raises(ActorUnschedulableError):
        ray.get(Held.options(scheduling_strategy=strategy).remote().group.remote(), timeout=60)


@pytest.mark.parametrize("node", ["", "short", "ff" * 28])
def test_a_node_identifier_that_is_none_is_refused(node: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        ray.get(group_of.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(), timeout=30)


def test_a_label_strategy_selects_the_node_by_its_identifier() -> None:
    here = ray.get_runtime_context().get_node_id()
    for hard in (
        {"ray.io/node-id": In(here)},
        {"ray.io/node-id": Exists()},
        {"no-such-label": DoesNotExist()},
        {"ray.io/node-id": NotIn("other")},
    ):
        strategy = NodeLabelSchedulingStrategy(hard=hard)
        assert ray.get(group_of.options(scheduling_strategy=strategy).remote(), timeout=60) is None


def test_soft_labels_are_wishes() -> None:
    strategy = NodeLabelSchedulingStrategy(hard={}, soft={"no-such-label": Exists()})
    assert ray.get(group_of.options(scheduling_strategy=strategy).remote(), timeout=60) is None


@pytest.mark.parametrize("hard", [{"key": 5}, {5: In("a")}, "text"], ids=["value", "key", "text"])
def test_a_label_strategy_refuses_what_is_no_operator(hard: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        NodeLabelSchedulingStrategy(hard=hard)


@pytest.mark.parametrize(
    "selector", [{"ray.io/node-id": "in()"}, {"bad key!": "a"}, {"key": 5}, {"key": "in(a"}, "text"], ids=str
)
def test_a_label_selector_that_is_none_is_refused(selector: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        group_of.options(label_selector=selector).remote()


def test_all_strategies_of_groups_work_on_one_node(make: Any) -> None:
    for strategy in ("PACK", "SPREAD", "STRICT_PACK"):
        assert make([{"CPU": 1}], strategy=strategy).wait(30)


def test_a_strict_spread_over_one_node_waits(make: Any) -> None:
    assert not make([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD").wait(0.3)


def test_a_detached_group_is_found_by_its_name() -> None:
    group = placement_group([{"CPU": 1}], name="detached group", lifetime="detached")
    assert group.wait(30)
    remove_placement_group(get_placement_group("detached group"))


def test_a_group_is_pickled_with_its_bundles(make: Any) -> None:
    group = make([{"CPU": 1}, {"CPU": 1}])

    @ray.remote(num_cpus=0)
    def look(group: PlacementGroup) -> tuple[int, bool]:
        return group.bundle_count, group.wait(30)

    assert ray.get(look.remote(group)) == (2, True)


def test_cluster_resources_have_the_node_and_the_memory() -> None:
    total = ray.cluster_resources()
    assert (total["CPU"], total["GPU"], total["part"]) == (4.0, 2.0, 8.0)
    assert total["memory"] > 0
    assert total["object_store_memory"] > 0
    assert any(name.startswith("node:") and name != "node:__internal_head__" for name in total)
    assert total["node:__internal_head__"] == 1.0


def test_the_head_node_has_a_resource_of_its_own() -> None:
    assert ray.get(group_of.options(resources={"node:__internal_head__": 0.001}).remote(), timeout=60) is None


def test_nodes_tell_where_they_are() -> None:
    (node,) = [node for node in ray.nodes() if node["Alive"]]
    assert node["NodeID"] == ray.get_runtime_context().get_node_id()
    assert node["NodeManagerAddress"] == ray.util.get_node_ip_address()
    assert node["NodeManagerHostname"] == os.uname().nodename
    assert node["Resources"]["CPU"] == 4.0
    assert node["Labels"]["ray.io/node-id"] == node["NodeID"]
    assert node["alive"] is True
    for key in (
        "NodeManagerPort",
        "ObjectManagerPort",
        "ObjectStoreSocketName",
        "RayletSocketName",
        "MetricsExportPort",
        "NodeName",
    ):
        assert key in node
