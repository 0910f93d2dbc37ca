"""Running within a placement group: its devices, its room, what is captured."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
import ray
from ray.util.placement_group import (
    PlacementGroup,
    get_current_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Within
from watching import wait_until

pytestmark = pytest.mark.usefixtures("eight_gpus")


def whole() -> bool:
    return ray.available_resources().get("GPU") == 8.0 and ray.available_resources().get("CPU") == 8.0


@pytest.fixture(autouse=True)
def everything_comes_back():
    yield
    for group in placement_group_table():
        remove_placement_group(PlacementGroup(ray.PlacementGroupID.from_hex(group)))
    wait_until(whole)


@ray.remote(num_cpus=0)
def facts():
    context = ray.get_runtime_context()
    return {
        "ids": ray.get_gpu_ids(),
        "variable": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "held": context.get_assigned_resources(),
        "group": context.get_placement_group_id(),
        "captures": context.should_capture_child_tasks_in_placement_group,
        "current": get_current_placement_group(),
    }


@ray.remote(num_cpus=0)
class Holder:
    def facts(self):
        return ray.get(facts.remote()), ray.get_gpu_ids(), ray.get_runtime_context().get_placement_group_id()

    def ids(self):
        return ray.get_gpu_ids()

    def sleep(self):
        time.sleep(1000)


def test_tasks_get_exactly_the_devices_of_their_bundle() -> None:
    group = placement_group([{"GPU": 2}, {"GPU": 1, "CPU": 1}])
    assert ray.get(group.ready(), timeout=20) == group
    in_first = ray.get(facts.options(num_gpus=2, scheduling_strategy=Within(group, 0)).remote(), timeout=20)
    assert (in_first["ids"], in_first["variable"], in_first["held"]) == ([0, 1], "0,1", {"GPU": 2.0})
    in_second = ray.get(facts.options(num_gpus=1, scheduling_strategy=Within(group, 1)).remote(), timeout=20)
    assert (in_second["ids"], in_second["group"]) == ([2], group.id.hex())
    assert in_second["current"] == group and hash(in_second["current"]) == hash(group)
    outside = ray.get(facts.options(num_gpus=1).remote(), timeout=20)
    assert outside["ids"] == [3] and outside["group"] is None
    plain = ray.get(facts.options(scheduling_strategy=Within(group)).remote(), timeout=20)
    assert plain["ids"] == [] and plain["variable"] is None


def test_shares_pack_within_a_bundle_and_a_share_is_a_bounded_part_of_a_device() -> None:
    group = placement_group([{"GPU": 2}, {"GPU": 0.5}])
    holders = [Holder.options(num_gpus=0.5, scheduling_strategy=Within(group, 0)).remote() for _ in range(4)]
    assert ray.get([holder.ids.remote() for holder in holders], timeout=20) == [[0], [0], [1], [1]]
    share = Holder.options(num_gpus=0.5, scheduling_strategy=Within(group, 1)).remote()
    assert ray.get(share.ids.remote(), timeout=20) == [2]
    waits = Holder.options(num_gpus=0.25, scheduling_strategy=Within(group, 0)).remote()
    answer = waits.ids.remote()
    assert ray.wait([answer], timeout=0.3)[0] == []
    ray.kill(holders[2])
    assert ray.get(answer, timeout=20) == [1]


def test_reservations_leave_available_and_nothing_internal_shows() -> None:
    group = placement_group([{"CPU": 2, "GPU": 3}, {"widgets": 1.5}])
    assert group.wait(20)
    available = ray.available_resources()
    assert (available["CPU"], available["GPU"], available["widgets"]) == (6.0, 5.0, 2.5)
    assert not [name for name in {**available, **ray.cluster_resources()} if "group" in name or "bundle" in name]
    ray.get(facts.options(num_gpus=1, scheduling_strategy=Within(group)).remote(), timeout=20)
    assert ray.available_resources()["GPU"] == 5.0


def test_what_does_not_fit_is_refused_when_it_is_asked_for() -> None:
    group = placement_group([{"CPU": 1, "GPU": 1}, {"GPU": 2}])
    with pytest.raises(ValueError, match="cannot fit into any bundles"):
        facts.options(num_gpus=3, scheduling_strategy=Within(group)).remote()
    with pytest.raises(ValueError, match="cannot fit into bundle 0"):
        facts.options(num_gpus=2, scheduling_strategy=Within(group, 0)).remote()
    for index in (2, -2):
        with pytest.raises(ValueError, match=f"bundle index {index} is invalid"):
            facts.options(scheduling_strategy=Within(group, index)).remote()
    with pytest.raises(ValueError, match="no placement group"):
        facts.options(scheduling_strategy=Within("x")).remote()
    without_cpu = placement_group([{"GPU": 1}])
    with pytest.raises(ValueError, match="needs 1 CPU while it is made"):
        ray.remote(Holder._class).options(scheduling_strategy=Within(without_cpu)).remote()
    with pytest.raises(ValueError, match="Holder"):
        Holder.options(num_gpus=3, scheduling_strategy=Within(group)).remote()


def test_children_are_captured_where_that_is_asked_for() -> None:
    group = placement_group([{"CPU": 1, "GPU": 2}])

    @ray.remote(num_cpus=0)
    def parent():
        child = ray.get(facts.remote())
        escaped = ray.get(facts.options(scheduling_strategy="DEFAULT").remote())
        too_large = None
        try:
            facts.options(num_gpus=3).remote()
        except ValueError as error:
            too_large = str(error)
        holder = Holder.remote()
        return child, escaped, too_large, ray.get(holder.facts.remote())

    captured = parent.options(scheduling_strategy=Within(group, 0, True))
    child, escaped, too_large, (grandchild, _, home) = ray.get(captured.remote(), timeout=30)
    assert (child["group"], child["captures"]) == (group.id.hex(), True)
    assert escaped["group"] is None
    assert "cannot fit" in too_large
    assert home == grandchild["group"] == group.id.hex(), "what a captured actor makes is captured too"
    plain = ray.get(parent.options(scheduling_strategy=Within(group)).remote(), timeout=30)
    assert plain[0]["group"] is None and plain[2] is None, "without, its children run anywhere"


def test_a_captured_child_chooses_its_bundle() -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1, "GPU": 2}])

    @ray.remote(num_cpus=0)
    def parent():
        child = ray.get(facts.options(num_gpus=2, placement_group_bundle_index=1).remote())
        refused = []
        for index in (0, 2):
            with pytest.raises(ValueError) as caught:
                facts.options(num_gpus=2, placement_group_bundle_index=index).remote()
            refused.append(str(caught.value))
        return child["group"], len(child["ids"]), refused

    captured = parent.options(scheduling_strategy=Within(group, 0, True))
    home, devices, (too_large, unknown) = ray.get(captured.remote(), timeout=30)
    assert (home, devices) == (group.id.hex(), 2)
    assert "cannot fit into bundle 0" in too_large and "bundle index 2 is invalid" in unknown
    with pytest.raises(ValueError, match="value of bundle index must be -1"):
        ray.get(parent.options(scheduling_strategy=Within(group)).remote(), timeout=30)


@pytest.mark.parametrize("given", [{}, {"placement_group": None}, {"scheduling_strategy": "SPREAD"}], ids=str)
def test_a_bundle_of_no_group_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="the value of bundle index must be -1. placement_group_bundle_index is 0"):
        facts.options(placement_group_bundle_index=0, **given).remote()


def test_a_reused_process_forgets_the_group_it_was_in() -> None:
    group = placement_group([{"CPU": 1}])

    @ray.remote
    def child():
        return ray.get_runtime_context().get_placement_group_id()

    @ray.remote
    def parent():
        return os.getpid(), ray.get(child.remote())

    seen = [ray.get(parent.options(scheduling_strategy=Within(group, 0, True)).remote(), timeout=20)[1]]
    seen += [ray.get(parent.remote(), timeout=20)[1] for _ in range(3)]
    assert seen == [group.id.hex(), None, None, None]


def test_a_blocked_parent_lends_its_cpu_within_the_bundle() -> None:
    group = placement_group([{"CPU": 1}])
    one_cpu = facts.options(num_cpus=1)

    @ray.remote
    def parent():
        return ray.get(one_cpu.remote())["group"]

    captured = parent.options(scheduling_strategy=Within(group, 0, True))
    assert ray.get(captured.remote(), timeout=20) == group.id.hex()


def test_removal_ends_what_runs_and_what_waits() -> None:
    group = placement_group([{"CPU": 1, "GPU": 2}])

    @ray.remote(num_gpus=2, max_retries=-1)
    def forever(mark):
        mark.done.remote()
        time.sleep(1000)

    @ray.remote(num_cpus=0)
    class Mark:
        def __init__(self):
            self.count = 0

        def done(self):
            self.count += 1

        def counted(self):
            return self.count

    mark = Mark.remote()
    runs, waits = (forever.options(num_cpus=0, scheduling_strategy=Within(group)).remote(mark) for _ in range(2))
    actor = Holder.options(scheduling_strategy=Within(group)).remote()
    call = actor.sleep.remote()
    unplaced = Holder.options(num_gpus=1, scheduling_strategy=Within(group)).remote()
    wait_until(lambda: ray.get(mark.counted.remote()) == 1)
    remove_placement_group(group)
    for reference in (runs, waits):
        with pytest.raises(ray.exceptions.TaskPlacementGroupRemoved, match="remove_placement_group"):
            ray.get(reference, timeout=20)
    for reference in (call, unplaced.ids.remote(), actor.ids.remote()):
        with pytest.raises(ray.exceptions.ActorPlacementGroupRemoved) as caught:
            ray.get(reference, timeout=20)
        assert isinstance(caught.value, ray.exceptions.ActorDiedError), "as Ray has it for one that runs"
    with pytest.raises(ray.exceptions.TaskPlacementGroupRemoved):
        ray.get(facts.options(scheduling_strategy=Within(group)).remote(), timeout=20)
    with pytest.raises(ray.exceptions.TaskPlacementGroupRemoved):
        ray.get(group.ready(), timeout=20)
    with pytest.raises(ray.exceptions.TaskPlacementGroupRemoved):
        group.wait(20)
    remove_placement_group(group)
    wait_until(whole)


def test_a_bundle_outlives_a_process_that_is_killed_within_it() -> None:
    group = placement_group([{"CPU": 1, "GPU": 1}])

    @ray.remote(num_gpus=1, num_cpus=0, max_retries=0)
    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(ray.exceptions.WorkerCrashedError):
        ray.get(die.options(scheduling_strategy=Within(group)).remote(), timeout=20)
    again = ray.get(facts.options(num_gpus=1, scheduling_strategy=Within(group)).remote(), timeout=20)
    assert again["ids"] == [0] and ray.available_resources()["GPU"] == 7.0


def test_the_old_option_still_works() -> None:
    group = placement_group([{"CPU": 1}])
    with pytest.warns(DeprecationWarning, match="PlacementGroupSchedulingStrategy"):
        old = facts.options(placement_group=group, placement_group_bundle_index=0)
    assert ray.get(old.remote(), timeout=20)["group"] == group.id.hex()
    with pytest.raises(ValueError, match="bundle index 1 is invalid"), pytest.warns(DeprecationWarning):
        facts.options(placement_group=group, placement_group_bundle_index=1).remote()


def test_tasks_wait_for_a_group_that_waits() -> None:
    first = placement_group([{"GPU": 8}])
    assert first.wait(20)
    second = placement_group([{"GPU": 4}, {"GPU": 4}])
    waits = facts.options(num_gpus=4, scheduling_strategy=Within(second, 1)).remote()
    assert not second.wait(0.2) and ray.wait([waits], timeout=0.2)[0] == []
    remove_placement_group(first)
    assert ray.get(waits, timeout=20)["ids"] == [4, 5, 6, 7]


@ray.remote(num_cpus=1)
class Trainer:
    def ids(self):
        return ray.get_gpu_ids()


def test_work_without_devices_leaves_the_bundles_that_have_some() -> None:
    group = placement_group([{"CPU": 1, "GPU": 1}, {"CPU": 1}, {"CPU": 1}])
    ray.get(group.ready(), timeout=60)
    within = Within(group)
    others = [Trainer.options(scheduling_strategy=within).remote() for _ in range(2)]
    assert ray.get([other.ids.remote() for other in others], timeout=60) == [[], []]
    trainer = Trainer.options(num_gpus=1, scheduling_strategy=within).remote()
    assert len(ray.get(trainer.ids.remote(), timeout=60)) == 1
    remove_placement_group(group)
