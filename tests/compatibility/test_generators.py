"""Generators: results that come one by one."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import ray

pytestmark = pytest.mark.usefixtures("session")


@ray.remote
def count(n: int) -> Any:
    for i in range(n):
        yield i


@ray.remote
class Counting:
    def count(self, n: int) -> Any:
        for i in range(n):
            yield i

    async def count_later(self, n: int) -> Any:
        for i in range(n):
            await asyncio.sleep(0)
            yield i


def test_a_generator_yields_references() -> None:
    references = list(count.remote(3))
    assert all(isinstance(reference, ray.ObjectRef) for reference in references)
    assert ray.get(references) == [0, 1, 2]


def test_a_call_of_a_generator_gives_an_object_ref_generator() -> None:
    assert isinstance(count.remote(1), ray.ObjectRefGenerator)


def test_next_waits_for_the_next_item() -> None:
    generator = count.remote(2)
    assert ray.get(next(generator)) == 0
    assert ray.get(next(generator)) == 1
    with pytest.raises(StopIteration):
        next(generator)


def test_items_come_before_the_generator_has_ended(tmp_path: Any) -> None:
    @ray.remote
    def slow() -> Any:
        yield "first"
        while not (tmp_path / "go").exists():
            time.sleep(0.01)
        yield "second"

    generator = slow.remote()
    assert ray.get(next(generator)) == "first"
    (tmp_path / "go").touch()
    assert ray.get(next(generator)) == "second"


def test_an_exception_comes_after_what_was_yielded() -> None:
    @ray.remote
    def fail() -> Any:
        yield 1
        raise ValueError("the reason")

    generator = fail.remote()
    assert ray.get(next(generator)) == 1
    with pytest.raises(ValueError, match="the reason"):
        ray.get(next(generator))
    with pytest.raises(StopIteration):
        next(generator)


def test_a_generator_of_an_actor() -> None:
    assert ray.get(list(Counting.remote().count.remote(3))) == [0, 1, 2]


def test_an_async_generator_of_an_actor() -> None:
    assert ray.get(list(Counting.remote().count_later.remote(3))) == [0, 1, 2]


def test_a_generator_is_iterated_asynchronously() -> None:
    async def main() -> list:
        return [await reference async for reference in count.remote(3)]

    assert asyncio.run(main()) == [0, 1, 2]


def test_a_generator_without_items_ends_at_once() -> None:
    assert list(count.remote(0)) == []


def test_wait_takes_a_generator(tmp_path: Any) -> None:
    generator = count.remote(1)
    ready, rest = ray.wait([generator], timeout=30)
    assert ready == [generator] and rest == []
    assert ray.get(next(generator)) == 0


def test_wait_on_a_generator_times_out(tmp_path: Any) -> None:
    @ray.remote
    def slow() -> Any:
        while not (tmp_path / "go").exists():
            time.sleep(0.01)
        yield 1

    generator = slow.remote()
    assert ray.wait([generator], timeout=0.2) == ([], [generator])
    (tmp_path / "go").touch()
    assert ray.wait([generator], timeout=30)[0] == [generator]


def test_completed_is_a_reference_that_waits_for_the_end() -> None:
    generator = count.remote(2)
    ray.get(generator.completed(), timeout=30)
    assert ray.get(list(generator)) == [0, 1]


def test_large_items_come_through_the_store() -> None:
    @ray.remote
    def arrays() -> Any:
        for i in range(3):
            yield np.full(200_000, i)

    assert [int(ray.get(reference)[0]) for reference in arrays.remote()] == [0, 1, 2]


def test_back_pressure_stops_the_generator_until_it_is_read(tmp_path: Any, eventually: Callable[..., Any]) -> None:
    @ray.remote(_generator_backpressure_num_objects=2)
    def eager() -> Any:
        for i in range(6):
            (tmp_path / str(i)).touch()
            yield i

    generator = eager.remote()
    eventually((tmp_path / "1").exists)
    assert not (tmp_path / "5").exists()
    assert ray.get(list(generator)) == list(range(6))


def test_a_generator_that_dies_runs_again(tmp_path: Any) -> None:
    @ray.remote(max_retries=1)
    def once() -> Any:
        yield 0
        if not (tmp_path / "ran").exists():
            (tmp_path / "ran").touch()
            os._exit(1)
        yield 1

    assert ray.get(list(once.remote())) == [0, 1]


def test_a_generator_can_be_cancelled(tmp_path: Any) -> None:
    @ray.remote
    def endless() -> Any:
        while True:
            yield 1
            time.sleep(0.01)

    generator = endless.remote()
    ray.get(next(generator))
    ray.cancel(generator)
    with pytest.raises(ray.exceptions.TaskCancelledError):
        for reference in generator:
            ray.get(reference)


def test_a_generator_cannot_be_passed() -> None:
    @ray.remote
    def use(generator: Any) -> None: ...

    with pytest.raises(TypeError):
        use.remote(count.remote(1))


def test_items_can_be_passed_to_tasks() -> None:
    @ray.remote
    def double(x: int) -> int:
        return 2 * x

    assert ray.get([double.remote(reference) for reference in count.remote(3)]) == [0, 2, 4]


def test_several_generators_are_read_in_turn() -> None:
    one, other = count.remote(2), count.remote(2)
    assert ray.get([next(one), next(other), next(one), next(other)]) == [0, 0, 1, 1]


def test_num_returns_streaming_is_a_generator() -> None:
    @ray.remote(num_returns="streaming")
    def items() -> Any:
        yield 1

    assert isinstance(items.remote(), ray.ObjectRefGenerator)


def test_num_returns_streaming_is_for_generators_only() -> None:
    with pytest.raises(ValueError, match="can only be used with generator functions"):
        ray.remote(num_returns="streaming")(lambda: 1)


def test_references_within_items_can_be_read() -> None:
    @ray.remote
    def references() -> Any:
        for i in range(2):
            yield [ray.put(i)]

    assert [ray.get(ray.get(reference)[0]) for reference in references.remote()] == [0, 1]


def test_awaiting_the_end_of_a_cancelled_generator_raises() -> None:
    @ray.remote
    def endless() -> Any:
        while True:
            yield 1
            time.sleep(0.01)

    async def cancelled() -> None:
        generator = endless.remote()
        await generator.__anext__()
        ray.cancel(generator)
        await asyncio.wait_for(generator.completed(), 30)

    with pytest.raises(ray.exceptions.TaskCancelledError):
        asyncio.run(cancelled())
