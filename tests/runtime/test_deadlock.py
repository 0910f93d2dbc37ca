"""Tasks that wait for what others of them hold: one of them fails, and nobody does who could go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from watching import wait_until

import oxiray as ray
from oxiray.exceptions import ActorUnschedulableError, DeviceDeadlockError, GetTimeoutError, RayTaskError


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


def test_drivers_may_only_be_told(start: Any, capfd: pytest.CaptureFixture[str]) -> None:
    start(1, "tell")
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
    with pytest.raises(ValueError, match="OXIRAY_DEADLOCK is `hang`; it is to be `tell` or `fail`"):
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
