"""Groups that were just made: made and awaited without a question for each, and known to whoever is told of them."""

from __future__ import annotations

import pickle

import pytest
import ray
from ray.exceptions import TaskPlacementGroupRemoved
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.placement_group import PlacementGroup


@pytest.fixture(scope="module", autouse=True)
def _cluster():
    ray.shutdown()
    ray.init(num_cpus=2, resources={"shares": 100})
    yield
    ray.shutdown()


def shares() -> float:
    return ray.available_resources().get("shares", 0.0)


def test_many_at_a_time_come_and_go_without_a_trace() -> None:
    for _ in range(20):
        groups = [placement_group([{"shares": 0.5}]) for _ in range(100)]
        assert all([group.wait(20) for group in groups])
        assert shares() == 50.0
        for group in groups:
            remove_placement_group(group)
        assert shares() == 100.0


def test_each_wait_of_a_created_group_says_so() -> None:
    group = placement_group([{"shares": 1}])
    first = group.ready()
    assert [group.wait(20) for _ in range(3)] == [True] * 3
    assert ray.get([first, group.ready()], timeout=20) == [group, group]
    remove_placement_group(group)


@pytest.mark.parametrize("settled", [False, True], ids=["at once", "once it is created"])
@pytest.mark.parametrize("by_copy", [False, True], ids=["itself", "a copy"])
def test_a_group_that_was_removed_is_never_said_to_be_there(settled, by_copy) -> None:
    group = placement_group([{"shares": 1}])
    if settled:
        # The daemon has answered for the first of two groups where it has for the second.
        other = placement_group([{"shares": 1}])
        assert other.wait(20)
        remove_placement_group(other)
    remove_placement_group(PlacementGroup(group.id) if by_copy else group)
    for _ in range(2):
        with pytest.raises(TaskPlacementGroupRemoved):
            group.wait(20)
        with pytest.raises(TaskPlacementGroupRemoved):
            ray.get(group.ready(), timeout=20)
    assert placement_group_table(group)["state"] == "REMOVED"


def test_a_group_that_another_process_removed_is_never_said_to_be_there() -> None:
    @ray.remote(num_cpus=0)
    def remove(given):
        remove_placement_group(given)
        return placement_group_table(given)["state"]

    for _ in range(20):
        group = placement_group([{"shares": 1}])
        assert ray.get(remove.remote(group), timeout=20) == "REMOVED"
        with pytest.raises(TaskPlacementGroupRemoved):
            group.wait(20)


def test_whoever_is_told_of_a_group_finds_it() -> None:
    @ray.remote(num_cpus=0)
    class Other:
        def finds(self, told):
            group = told if isinstance(told, PlacementGroup) else PlacementGroup(ray.PlacementGroupID.from_hex(told))
            return group.wait(20)

    other = Other.remote()
    ray.get(other.__ray_ready__.remote(), timeout=20)
    for _ in range(50):
        group, named = placement_group([{"shares": 0.5}]), placement_group([{"shares": 0.5}])
        answers = [other.finds.remote(group), other.finds.remote(named.id.hex())]
        assert ray.get(answers, timeout=20) == [True, True]
        remove_placement_group(group)
        remove_placement_group(named)


def test_a_group_without_room_waits_for_it() -> None:
    large, next_one = placement_group([{"shares": 60}]), placement_group([{"shares": 60}])
    waiting = next_one.ready()
    assert large.wait(20) and not next_one.wait(0.05)
    assert not next_one.wait(0)
    remove_placement_group(large)
    assert next_one.wait(20) and ray.get(waiting, timeout=20) == next_one
    third = placement_group([{"shares": 60}])
    waiting = third.ready()
    remove_placement_group(third)
    with pytest.raises(TaskPlacementGroupRemoved):
        ray.get(waiting, timeout=20)
    remove_placement_group(next_one)


def test_what_the_daemon_refuses_is_raised_where_the_group_is_asked_for() -> None:
    with pytest.raises(ValueError, match="name"):
        placement_group([{"": 1}])


def test_a_group_outlives_the_connection_as_a_value() -> None:
    group = placement_group([{"shares": 1}])
    ray.shutdown()
    assert group.id.hex() in repr(group) and pickle.loads(pickle.dumps(group)) == group
    ray.init(num_cpus=2, resources={"shares": 100})
