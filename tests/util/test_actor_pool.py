"""`ray.util.ActorPool`: work shared out over actors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import ray
from ray.util import ActorPool


@ray.remote(num_cpus=0)
class Gate:
    """Doubles at once; `after` waits until it is opened."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def open(self) -> None:
        self.opened.set()

    async def after(self, value: int) -> int:
        await self.opened.wait()
        return 2 * value

    async def double(self, value: int) -> int:
        if value < 0:
            raise ValueError("negative")
        return 2 * value

    @ray.method(num_returns=2)
    async def both(self, value: int) -> tuple[int, int]:
        return value, -value


def double(actor: Any, value: int) -> Any:
    return actor.double.remote(value)


def after(actor: Any, value: int) -> Any:
    return actor.after.remote(value)


@pytest.fixture
def gates(cluster: Callable[..., Any]) -> list[Any]:
    cluster()
    make: Any = Gate
    return [make.remote() for _ in range(2)]


def test_map_keeps_the_order(gates: list[Any]) -> None:
    assert list(ActorPool(gates).map(double, range(10))) == [2 * value for value in range(10)]


def test_map_unordered_gives_every_result(gates: list[Any]) -> None:
    assert sorted(ActorPool(gates).map_unordered(double, range(10))) == [2 * value for value in range(10)]


def test_map_drops_what_was_submitted_before_even_what_failed(gates: list[Any]) -> None:
    pool = ActorPool(gates)
    for value in (100, -1, 200):
        pool.submit(double, value)
    assert list(pool.map(double, [1, 2, 3])) == [2, 4, 6]
    pool.submit(double, -1)
    assert sorted(pool.map_unordered(double, [1, 2, 3])) == [2, 4, 6]


def test_unordered_gives_what_is_done_first(gates: list[Any]) -> None:
    pool = ActorPool(gates)
    pool.submit(after, 1)
    pool.submit(double, 2)
    assert pool.get_next_unordered() == 4
    with pytest.raises(ValueError, match="get_next_unordered"):
        pool.get_next()
    ray.get([gate.open.remote() for gate in gates])
    assert pool.get_next_unordered() == 2
    assert not pool.has_next()
    for get in (pool.get_next, pool.get_next_unordered):
        with pytest.raises(StopIteration):
            get()


@pytest.mark.parametrize("name", ["get_next", "get_next_unordered"])
def test_a_result_that_is_late(gates: list[Any], name: str) -> None:
    pool = ActorPool(gates[:1])
    pool.submit(after, 1)
    with pytest.raises(TimeoutError):
        getattr(pool, name)(timeout=0)
    assert pool.has_next()
    with pytest.raises(TimeoutError, match="given up"):
        getattr(pool, name)(timeout=0, ignore_if_timedout=True)
    assert not pool.has_next() and pool.has_free()
    pool.submit(double, 5)
    assert getattr(pool, name)(timeout=60) == 10


def test_submissions_wait_for_an_idle_actor(gates: list[Any]) -> None:
    pool = ActorPool(gates[:1])
    assert pool.has_free() and not pool.has_next()
    for value in (1, 2):
        pool.submit(double, value)
    assert pool.has_next() and not pool.has_free()
    assert pool.pop_idle() is None
    assert [pool.get_next(), pool.get_next()] == [2, 4]
    assert pool.has_free()


def test_actors_come_and_go(gates: list[Any]) -> None:
    first, second = gates
    pool = ActorPool([first])
    with pytest.raises(ValueError, match="already"):
        pool.push(first)
    pool.submit(after, 1)
    pool.submit(double, 2)
    with pytest.raises(ValueError, match="already"):
        pool.push(first)
    pool.push(second)
    assert pool.get_next_unordered() == 4
    assert pool.pop_idle() == second
    assert pool.pop_idle() is None


def test_an_error_is_raised_and_its_actor_goes_on(gates: list[Any]) -> None:
    pool = ActorPool(gates[:1])
    pool.submit(double, -1)
    pool.submit(double, 3)
    with pytest.raises(ValueError, match="negative"):
        pool.get_next()
    assert pool.get_next() == 6


def test_a_dead_actor_leaves_the_pool(gates: list[Any]) -> None:
    pool = ActorPool(gates[:1])
    pool.submit(after, 1)
    ray.kill(gates[0])
    with pytest.raises(ray.exceptions.ActorDiedError):
        pool.get_next()
    assert not pool.has_free()
    pool.push(gates[1])
    pool.submit(double, 3)
    assert pool.get_next() == 6


def test_methods_with_several_results(gates: list[Any]) -> None:
    pool = ActorPool(gates)
    assert list(pool.map(lambda actor, value: actor.both.remote(value), [1, 2])) == [[1, -1], [2, -2]]
    assert sorted(pool.map_unordered(lambda actor, value: actor.both.remote(value), [1, 2])) == [[1, -1], [2, -2]]


def test_libraries_see_who_is_idle_and_who_works(gates: list[Any]) -> None:
    pool = ActorPool(gates)
    assert pool._idle_actors == gates
    assert pool._future_to_actor == {}
    pool.submit(after, 1)
    (actor,) = (one for one in gates if one not in pool._idle_actors)
    ((reference, (number, at_work)),) = pool._future_to_actor.items()
    assert (number, at_work) == (0, actor)
    ray.get(actor.open.remote())
    assert ray.get(reference) == pool.get_next() == 2
    assert sorted(map(repr, pool._idle_actors)) == sorted(map(repr, gates))
