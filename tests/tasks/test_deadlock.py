"""Tasks that wait for what others of them hold: one of them fails, and nobody does who could go on."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from watching import wait_until

import oxiray as ray
from oxiray.exceptions import (
    ActorUnschedulableError,
    DeviceDeadlockError,
    GetTimeoutError,
    RayTaskError,
    TaskCancelledError,
    TaskPlacementGroupRemoved,
)
from oxiray._cli import native_binary
from oxiray.util import explain
from oxiray.util.placement_group import placement_group, remove_placement_group
from oxiray.util.state import list_tasks


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Starts a cluster on which a deadlock lasts for a second."""

    def begin(gpus: int, mode: str = "fail") -> None:
        monkeypatch.setenv("OXIRAY_DEADLOCK_WAIT_S", "1")
        monkeypatch.setenv("OXIRAY_DEADLOCK", mode)
        ray.init(num_cpus=4, num_gpus=gpus)

    yield begin
    ray.shutdown()


@ray.remote(num_gpus=1)
def leaf(value: int = 0) -> int:
    return value + 1


@ray.remote(num_gpus=1, max_retries=0)
def parent(barrier: Any, timeout: float | None = None) -> int:
    ray.get(barrier.arrive.remote())
    return int(ray.get(leaf.remote(1), timeout=timeout))


@ray.remote(num_cpus=0)
class Barrier:
    """Lets those who arrive go on when all have arrived."""

    def __init__(self, parties: int) -> None:
        self.parties, self.arrived = parties, 0

    async def arrive(self) -> None:
        self.arrived += 1
        while self.arrived < self.parties:
            await asyncio.sleep(0.01)


def outcomes(references: list[Any]) -> list[Any]:
    found = []
    for reference in references:
        try:
            found.append(ray.get(reference, timeout=60))
        except RayTaskError as error:
            found.append(error.cause)
    return found


def test_of_two_that_wait_for_each_other_one_fails_and_the_other_goes_on(start: Any) -> None:
    start(2)
    barrier = Barrier.remote(2)
    found = outcomes([parent.remote(barrier), parent.remote(barrier)])
    assert sorted(type(one).__name__ for one in found) == ["DeviceDeadlockError", "int"]
    text = str(next(one for one in found if isinstance(one, DeviceDeadlockError)))
    assert text.count("waits for `leaf`") == 2 and "Ask for less in `leaf`" in text


def test_one_that_holds_all_there_is(start: Any) -> None:
    start(1)
    (found,) = outcomes([parent.remote(Barrier.remote(1))])
    assert isinstance(found, DeviceDeadlockError)
    assert ray.get(leaf.remote(), timeout=30) == 1, "what it held is free"


def test_nobody_fails_while_somebody_can_go_on(start: Any) -> None:
    start(3)
    barrier = Barrier.remote(2)

    @ray.remote(num_gpus=1)
    def slow() -> int:
        time.sleep(4)
        return 7

    running = slow.remote()
    found = outcomes([parent.remote(barrier), parent.remote(barrier)])
    assert found == [2, 2]
    assert ray.get(running) == 7


def test_who_waits_with_a_deadline_is_no_part_of_it(start: Any) -> None:
    start(1)
    (found,) = outcomes([parent.remote(Barrier.remote(1), timeout=4)])
    assert isinstance(found, GetTimeoutError)


def test_the_wait_may_lead_through_others(start: Any) -> None:
    start(1)

    @ray.remote(num_cpus=1)
    def between() -> int:
        return int(ray.get(leaf.remote(leaf.remote())))

    @ray.remote(num_gpus=1, max_retries=0)
    def outer() -> int:
        return int(ray.get(between.remote()))

    with pytest.raises(DeviceDeadlockError, match="waits for"):
        ray.get(outer.remote(), timeout=60)


def test_an_actor_that_waits_for_a_task(start: Any) -> None:
    start(1)

    @ray.remote(num_gpus=1)
    class Holder:
        def use(self) -> int:
            return int(ray.get(leaf.remote()))

        def waited(self) -> int:
            ready, _ = ray.wait([leaf.remote()])
            return int(ray.get(ready[0]))

        def plain(self) -> int:
            return 5

    holder = Holder.remote()
    for method in (holder.use, holder.waited):
        with pytest.raises(DeviceDeadlockError):
            ray.get(method.remote(), timeout=60)
    assert ray.get(holder.plain.remote(), timeout=30) == 5


def test_an_actor_that_waits_for_another(start: Any) -> None:
    start(1)

    @ray.remote(num_gpus=1)
    class Inner:
        def value(self) -> int:
            return 1

    @ray.remote(num_gpus=1)
    class Outer:
        def use(self) -> int:
            self.inner = Inner.remote()
            return int(ray.get(self.inner.value.remote()))

    with pytest.raises(ActorUnschedulableError, match="would for ever"):
        ray.get(Outer.remote().use.remote(), timeout=60)


@ray.remote(num_gpus=1)
class Idle:
    """Has a device, and mostly nothing to do."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def value(self) -> int:
        return 5

    def end_after(self, seconds: float) -> None:
        self.threads.append(threading.Timer(seconds, os._exit, [0]))
        self.threads[-1].start()


@ray.remote
def beside_an_actor(timeout: float | None = None) -> int:
    idle = Idle.remote()
    assert ray.get(idle.value.remote()) == 5
    return int(ray.get(leaf.remote(1), timeout=timeout))


def test_an_actor_that_nobody_calls_before_it_is_gone(start: Any) -> None:
    start(1)
    (found,) = outcomes([beside_an_actor.remote()])
    assert isinstance(found, DeviceDeadlockError)
    assert "is an actor without a call" in str(found) and "`Idle`" in str(found)
    assert ray.get(leaf.remote(), timeout=30) == 1, "the actor is gone with its handle"


def test_an_actor_without_a_call_is_no_part_of_it_where_something_ends_the_wait(start: Any) -> None:
    start(1)
    (found,) = outcomes([beside_an_actor.remote(timeout=4)])
    assert isinstance(found, GetTimeoutError)


def test_an_actor_without_a_call_and_a_device_more(start: Any) -> None:
    start(2)
    assert outcomes([beside_an_actor.remote()]) == [2]


@ray.remote(max_retries=0)
def with_handle(handles: list[Any], ends_after: float | None = None) -> int:
    if ends_after is not None:
        handles[0].end_after.remote(ends_after)
    return int(ray.get(leaf.remote(1)))


def test_an_actor_without_a_call_whose_handle_somebody_may_drop(start: Any) -> None:
    start(1)
    idle = Idle.remote()
    assert ray.get(idle.value.remote(), timeout=30) == 5
    waiting = with_handle.remote([idle])
    assert ray.wait([waiting], timeout=4) == ([], [waiting])
    ray.kill(idle)
    assert ray.get(waiting, timeout=30) == 2


def test_an_actor_without_a_call_that_ends_by_itself(start: Any) -> None:
    start(1)
    assert ray.get(with_handle.remote([Idle.remote()], ends_after=4), timeout=30) == 2


@ray.remote(num_gpus=1, max_retries=0)
def awaits_group(timeout: float | None = None) -> int:
    group = placement_group([{"GPU": 1}, {"GPU": 1}])
    if timeout is not None:
        return int(group.wait(timeout))
    ray.get(group.ready())
    return 7


def test_a_group_that_its_maker_leaves_no_room_for(start: Any) -> None:
    start(2)
    (found,) = outcomes([awaits_group.remote()])
    assert isinstance(found, DeviceDeadlockError)
    assert "group `" in str(found) and "`awaits_group` (pid" in str(found)
    assert ray.get(leaf.remote(), timeout=30) == 1
    rows = ray.util.placement_group_table().values()
    assert [row["state"] for row in rows] == ["REMOVED"], "nobody waits for it any more"


def test_a_group_that_is_awaited_with_a_deadline(start: Any) -> None:
    start(2)
    assert outcomes([awaits_group.remote(timeout=4)]) == [0]


def test_a_group_and_a_device_more(start: Any) -> None:
    start(3)
    assert outcomes([awaits_group.remote()]) == [7]


@ray.remote(num_cpus=0)
class Box:
    """Gives what is put in to whoever waits for it."""

    def __init__(self) -> None:
        self.content: list[Any] = []
        self.takers = 0

    def put(self, value: Any) -> None:
        self.content.append(value)

    async def take(self) -> Any:
        self.takers += 1
        while not self.content:
            await asyncio.sleep(0.01)
        return self.content[0]

    async def has_taker(self) -> None:
        while not self.takers:
            await asyncio.sleep(0.01)


def test_a_group_that_somebody_may_remove(start: Any) -> None:
    start(2)
    box = Box.remote()

    @ray.remote(num_gpus=1, max_retries=0)
    def awaits(box: Any) -> None:
        ray.get(ray.get(box.take.remote()).ready())

    waiting = awaits.remote(box)
    ray.get(box.has_taker.remote(), timeout=30)
    group = placement_group([{"GPU": 2}])
    ray.get(box.put.remote(group), timeout=30)
    assert ray.wait([waiting], timeout=4) == ([], [waiting])
    remove_placement_group(group)
    (found,) = outcomes([waiting])
    assert isinstance(found, TaskPlacementGroupRemoved)


#: What each of these does with two GPUs of which `held` has what is needed, in a program that waits as long as it takes.
PROGRAMS = {
    "an actor": """
        held = Idle.options(num_gpus=2).remote()
        ray.get(held.value.remote())
        attempt(lambda: ray.get(leaf.remote()))
        ray.kill(held)
    """,
    "a group": """
        held = placement_group([{"GPU": 2}])
        ray.get(held.ready())
        other = placement_group([{"GPU": 1}])
        attempt(lambda: other.wait(None))
        attempt(lambda: ray.get(leaf.remote()))
        remove_placement_group(held)
    """,
    "a task in a group": """
        held = placement_group([{"CPU": 1, "GPU": 1}])
        inside = PlacementGroupSchedulingStrategy(held, placement_group_capture_child_tasks=True)
        attempt(lambda: ray.get(parent.options(scheduling_strategy=inside).remote()))
        remove_placement_group(held)
    """,
    "a group that a thread removes": """
        held = placement_group([{"GPU": 2}])
        ray.get(held.ready())
        threading.Timer(4, remove_placement_group, [held]).start()
        attempt(lambda: ray.get(leaf.remote()))
    """,
    "a group that others may remove": """
        held = placement_group([{"GPU": 2}], name="known")
        ray.get(held.ready())

        @ray.remote
        def removes():
            time.sleep(4)
            remove_placement_group(get_placement_group("known"))

        removes.options(num_cpus=1).remote()
        attempt(lambda: ray.get(leaf.remote()))
    """,
    "an alarm": """
        held = Idle.options(num_gpus=2).remote()
        ray.get(held.value.remote())

        def end(*_):
            raise TimeoutError

        signal.signal(signal.SIGALRM, end)
        signal.alarm(4)
        attempt(lambda: ray.get(leaf.remote()))
        ray.kill(held)
    """,
}
EXPECTED = {
    "an actor": ["DeviceDeadlockError"],
    "a group": ["DeviceDeadlockError", "DeviceDeadlockError"],
    "a task in a group": ["DeviceDeadlockError"],
    "a group that a thread removes": ["1"],
    "a group that others may remove": ["1"],
    "an alarm": ["TimeoutError"],
}
BEGINNING = """
    import signal, threading, time
    import oxiray as ray
    from oxiray.util.placement_group import get_placement_group, placement_group, remove_placement_group
    from oxiray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    @ray.remote(num_gpus=1)
    class Idle:
        def value(self):
            return 5

    @ray.remote(num_gpus=1)
    def leaf():
        return 1

    @ray.remote(num_gpus=1, max_retries=0)
    def parent():
        return ray.get(leaf.remote())

    def attempt(act):
        try:
            print("came to", act())
        except Exception as error:
            print("came to", type(getattr(error, "cause", None) or error).__name__)

    ray.init(num_cpus=4, num_gpus=2)
"""


@pytest.mark.parametrize("case", list(PROGRAMS))
def test_a_program_that_waits_as_long_as_it_takes(case: str) -> None:
    program = textwrap.dedent(BEGINNING) + textwrap.dedent(PROGRAMS[case])
    environment = os.environ | {"OXIRAY_DEADLOCK_WAIT_S": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    came_to = [line.removeprefix("came to ") for line in ran.stdout.splitlines() if line.startswith("came to ")]
    assert came_to == EXPECTED[case], ran.stderr


def test_drivers_may_only_be_told(start: Any, capfd: pytest.CaptureFixture[str]) -> None:
    start(1, "report")
    waiting = parent.remote(Barrier.remote(1))
    said: list[str] = []

    def is_told() -> bool:
        said.append(capfd.readouterr().err)
        return "They wait until one of them is cancelled" in "".join(said)

    wait_until(is_told)
    with pytest.raises(GetTimeoutError):
        ray.get(waiting, timeout=2)
    ray.cancel(waiting, force=True)


def test_a_mode_that_there_is_not(start: Any) -> None:
    with pytest.raises(ValueError, match="OXIRAY_DEADLOCK is `hang`; it is to be `report` or `fail`"):
        start(1, "hang")


def test_across_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    from oxiray.cluster_utils import Cluster

    monkeypatch.setenv("OXIRAY_DEADLOCK_WAIT_S", "1")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    for _ in range(2):
        cluster.add_node(num_cpus=2, num_gpus=1)
    ray.init(address=cluster.address)
    try:
        barrier = Barrier.remote(2)
        found = outcomes([parent.remote(barrier), parent.remote(barrier)])
        assert sorted(type(one).__name__ for one in found) == ["DeviceDeadlockError", "int"]
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_who_asks_why_it_waits_is_told_of_a_deadlock_that_was_found(start: Any) -> None:
    start(2, "report")
    barrier = Barrier.remote(2)
    parents = [parent.remote(barrier) for _ in range(2)]
    waiting = ("name", "=", "leaf"), ("state", "=", "PENDING_NODE_ASSIGNMENT")
    wait_until(lambda: len(list_tasks(filters=waiting)) == 2)
    identifiers = [task.task_id for task in list_tasks(filters=waiting)]
    for identifier in identifiers:
        wait_until(lambda asked=identifier: "deadlock" in explain(asked))
        told = explain(identifier)
        reason = told["deadlock"]["reason"]
        assert reason.count("`parent` (pid ") == 2 and reason.count("waits for `leaf`") == 2, reason
        assert reason in told["reason"] and "OXIRAY_DEADLOCK is `report`" in reason, told
        assert "fails_in_s" not in told["deadlock"] and told["deadlock"]["found_s"] >= 0, told
        shown = subprocess.run(
            [native_binary(), "explain", "--wide", identifier], capture_output=True, text=True, check=True, timeout=60
        ).stdout
        assert "would for ever" in shown and "`parent` (pid " in shown, shown
        as_json = subprocess.run(
            [native_binary(), "explain", "--json", identifier], capture_output=True, text=True, check=True, timeout=60
        ).stdout
        assert json.loads(as_json)["deadlock"]["reason"] == reason
    ray.cancel(parents[0], force=True)
    with pytest.raises(TaskCancelledError):
        ray.get(parents[0], timeout=60)
    assert ray.get(parents[1], timeout=60) == 2
