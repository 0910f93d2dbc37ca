"""Placement groups: resources that are set aside together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray
from ray.util.placement_group import (
    PlacementGroup,
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

pytestmark = pytest.mark.usefixtures("session")


@pytest.fixture
def make(eventually: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Makes groups that are removed with the test, and waits until they are gone."""
    made = []

    def one(*arguments: Any, **options: Any) -> Any:
        made.append(placement_group(*arguments, **options))
        return made[-1]

    yield one
    for group in made:
        remove_placement_group(group)
        eventually(lambda group=group: placement_group_table(group)["state"] == "REMOVED")


@ray.remote(num_cpus=1)
def resources() -> dict:
    return ray.get_runtime_context().get_assigned_resources()


@ray.remote(num_cpus=1)
class Member:
    def group(self) -> Any:
        return get_current_placement_group()

    def f(self) -> int:
        return 1


def within(group: Any, **options: Any) -> PlacementGroupSchedulingStrategy:
    return PlacementGroupSchedulingStrategy(placement_group=group, **options)


def test_a_group_is_ready(make: Callable[..., Any]) -> None:
    group = make([{"CPU": 1}, {"CPU": 1}])
    assert ray.get(group.ready(), timeout=30) is not None
    assert group.wait(30) is True


def test_the_bundles_of_a_group_are_what_was_asked_for(make: Callable[..., Any]) -> None:
    group = make([{"CPU": 1}, {"CPU": 1, "part": 2}])
    assert group.bundle_specs == [{"CPU": 1}, {"CPU": 1, "part": 2}]
    assert group.bundle_count == 2


def test_a_group_takes_its_resources(make: Callable[..., Any], eventually: Callable[..., Any]) -> None:
    eventually(lambda: ray.available_resources().get("part") == 8)
    group = make([{"part": 6}])
    assert group.wait(30)
    eventually(lambda: ray.available_resources().get("part") == 2)


def test_a_group_that_is_removed_gives_its_resources_back(make: Callable[..., Any], eventually: Callable[..., Any]) -> None:
    group = make([{"part": 5}])
    assert group.wait(30)
    remove_placement_group(group)
    eventually(lambda: ray.available_resources().get("part") == 8)


def test_a_task_runs_in_a_bundle(make: Callable[..., Any]) -> None:
    group = make([{"CPU": 2}])
    task = resources.options(scheduling_strategy=within(group, placement_group_bundle_index=0))
    assert ray.get(task.remote(), timeout=60)["CPU"] == 1.0


@pytest.mark.differs("Ray 2.60 has such a request wait until one bundle has all of it")
def test_bundles_of_a_node_give_together_what_none_has_alone(make: Callable[..., Any]) -> None:
    group = make([{"part": 2}, {"part": 2}], strategy="STRICT_PACK")
    placed = Member.options(num_cpus=0, scheduling_strategy=within(group), resources={"part": 1.5})
    first, second = placed.remote(), placed.remote()
    assert ray.get([first.f.remote(), second.f.remote()], timeout=60) == [1, 1]
    third = Member.options(num_cpus=0, scheduling_strategy=within(group), resources={"part": 1}).remote()
    assert ray.get(third.f.remote(), timeout=60) == 1
    one = resources.options(num_cpus=0, scheduling_strategy=within(group), resources={"part": 0.5}).remote()
    assert ray.wait([one], timeout=2)[0] == []
    del third
    assert ray.get(one, timeout=60)["part"] == 0.5


def test_a_request_for_a_bundle_waits_for_that_one(make: Callable[..., Any]) -> None:
    group = make([{"part": 2}, {"part": 2}], strategy="STRICT_PACK")
    held = Member.options(
        num_cpus=0, scheduling_strategy=within(group, placement_group_bundle_index=1), resources={"part": 1.5}
    ).remote()
    assert ray.get(held.f.remote(), timeout=60) == 1
    task = resources.options(
        num_cpus=0, scheduling_strategy=within(group, placement_group_bundle_index=1), resources={"part": 1}
    ).remote()
    assert ray.wait([task], timeout=2)[0] == []
    del held
    assert ray.get(task, timeout=60)["part"] == 1.0


def test_work_without_devices_leaves_them_to_a_trainer(make: Callable[..., Any]) -> None:
    group = make([{"CPU": 1, "GPU": 1}, {"CPU": 1}, {"CPU": 1}])
    assert group.wait(30)
    loaders = [Member.options(scheduling_strategy=within(group)).remote() for _ in range(2)]
    assert ray.get([loader.f.remote() for loader in loaders], timeout=60) == [1, 1]
    trainer = Member.options(num_gpus=1, scheduling_strategy=within(group)).remote()
    assert ray.get(trainer.f.remote(), timeout=60) == 1


def test_an_actor_in_a_group_knows_it(make: Callable[..., Any]) -> None:
    group = make([{"CPU": 1}])
    member = Member.options(scheduling_strategy=within(group)).remote()
    assert ray.get(member.group.remote(), timeout=60).id == group.id


def test_outside_of_groups_there_is_no_current_group() -> None:
    assert get_current_placement_group() is None


def test_children_run_in_the_group_where_that_is_asked_for(make: Callable[..., Any]) -> None:
    @ray.remote(num_cpus=1)
    def child() -> Any:
        return get_current_placement_group()

    @ray.remote(num_cpus=1)
    def parent() -> Any:
        return ray.get(child.remote())

    group = make([{"CPU": 2}])
    captured = within(group, placement_group_capture_child_tasks=True)
    assert ray.get(parent.options(scheduling_strategy=captured).remote(), timeout=60).id == group.id
    assert ray.get(parent.options(scheduling_strategy=within(group)).remote(), timeout=60) is None


def test_the_table_tells_of_a_group(make: Callable[..., Any]) -> None:
    group = make([{"CPU": 1}, {"part": 1}], strategy="PACK", name="compat-table")
    assert group.wait(30)
    table = placement_group_table(group)
    assert (table["state"], table["strategy"], table["name"]) == ("CREATED", "PACK", "compat-table")
    assert table["bundles"] == {0: {"CPU": 1.0}, 1: {"part": 1.0}}
    assert set(table["bundles_to_node_id"].values()) == {ray.get_runtime_context().get_node_id()}
    assert {"scheduling_state", "scheduling_latency_ms", "end_to_end_creation_latency_ms"} <= set(table["stats"])


def test_the_table_has_the_time_that_making_a_group_took(make: Callable[..., Any]) -> None:
    group = make([{"CPU": 1}])
    assert group.wait(30)
    assert placement_group_table(group)["stats"]["end_to_end_creation_latency_ms"] > 0


def test_the_table_of_all_groups_has_each(make: Callable[..., Any]) -> None:
    group = make([{"CPU": 1}])
    assert group.id.hex() in placement_group_table()


def test_a_named_group_is_found_by_its_name(make: Callable[..., Any]) -> None:
    group = make([{"CPU": 1}], name="compat-found")
    assert group.wait(30)
    assert get_placement_group("compat-found").id == group.id


def test_a_name_of_no_group_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="compat-nobody"):
        get_placement_group("compat-nobody")


def test_a_group_that_waits_is_pending(make: Callable[..., Any]) -> None:
    first = make([{"CPU": 4}])
    assert first.wait(30)
    second = make([{"CPU": 4}])
    assert second.wait(0.3) is False
    assert placement_group_table(second)["state"] == "PENDING"
    remove_placement_group(first)
    assert second.wait(30) is True


def test_removing_a_group_ends_its_actors(make: Callable[..., Any], eventually: Callable[..., Any]) -> None:
    group = make([{"CPU": 1}])
    member = Member.options(scheduling_strategy=within(group)).remote()
    ray.get(member.f.remote(), timeout=60)
    remove_placement_group(group)

    def is_dead() -> bool:
        try:
            ray.get(member.f.remote(), timeout=60)
        except ray.exceptions.RayActorError:
            return True
        return False

    eventually(is_dead)


def test_removing_a_group_twice_is_fine(make: Callable[..., Any]) -> None:
    group = make([{"CPU": 1}])
    remove_placement_group(group)
    remove_placement_group(group)


def test_a_group_can_be_passed_to_a_task(make: Callable[..., Any]) -> None:
    @ray.remote(num_cpus=0)
    def use(group: Any) -> Any:
        return ray.get(resources.options(scheduling_strategy=within(group)).remote())

    group = make([{"CPU": 1}])
    assert ray.get(use.remote(group), timeout=60)["CPU"] == 1.0


def test_a_gpu_bundle_gives_its_device(make: Callable[..., Any]) -> None:
    @ray.remote(num_gpus=1)
    def devices() -> list:
        return ray.get_gpu_ids()

    group = make([{"GPU": 1, "CPU": 1}])
    in_bundle = devices.options(scheduling_strategy=within(group))
    first = ray.get(in_bundle.remote(), timeout=60)
    assert len(first) == 1 and ray.get(in_bundle.remote(), timeout=60) == first


@pytest.mark.parametrize("strategy", ["PACK", "SPREAD", "STRICT_PACK"])
def test_each_strategy_is_taken(strategy: str, make: Callable[..., Any]) -> None:
    assert make([{"CPU": 1}, {"CPU": 1}], strategy=strategy).wait(30)


def test_an_unknown_strategy_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="[sS]trategy"):
        placement_group([{"CPU": 1}], strategy="NEAR")


@pytest.mark.parametrize("bundles", [[], [{}], [{"CPU": 0}], "CPU"])
def test_bundles_without_resources_are_refused(bundles: Any) -> None:
    with pytest.raises(ValueError):
        placement_group(bundles)


def test_a_lifetime_is_detached_or_nothing() -> None:
    with pytest.raises(ValueError):
        placement_group([{"CPU": 1}], lifetime="forever")


def test_a_bundle_index_beyond_the_bundles_is_a_value_error(make: Callable[..., Any]) -> None:
    group = make([{"CPU": 1}])
    with pytest.raises(ValueError):
        resources.options(scheduling_strategy=within(group, placement_group_bundle_index=3)).remote()


def test_a_request_that_fits_no_bundle_is_a_value_error(make: Callable[..., Any]) -> None:
    group = make([{"CPU": 1}])
    with pytest.raises(ValueError):
        resources.options(num_cpus=2, scheduling_strategy=within(group)).remote()


def test_the_empty_group_is_no_group() -> None:
    assert PlacementGroup.empty().is_empty


def test_groups_are_equal_by_their_identifier(make: Callable[..., Any]) -> None:
    group = make([{"CPU": 1}], name="compat-equal-group")
    assert group.wait(30)
    assert get_placement_group("compat-equal-group") == group


def test_a_group_waits_for_its_turn_by_get(make: Callable[..., Any]) -> None:
    first = make([{"part": 8}])
    assert first.wait(30)
    second = make([{"part": 8}])
    with pytest.raises(ray.exceptions.GetTimeoutError):
        ray.get(second.ready(), timeout=0.3)
    remove_placement_group(first)
    ray.get(second.ready(), timeout=30)
