"""Programs of generators: items one by one, their errors, their end, and who reads them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.exceptions import RayTaskError, TaskCancelledError, WorkerCrashedError

pytestmark = pytest.mark.usefixtures("session")
Eventually = Callable[..., Any]


@ray.remote
def count(number: int) -> Iterator[int]:
    for index in range(number):
        yield index


def test_a_for_loop_reads_references() -> None:
    assert [ray.get(reference) for reference in count.remote(4)] == [0, 1, 2, 3]


def test_a_generator_is_read_once() -> None:
    generator = count.remote(2)
    assert len(list(generator)) == 2
    assert list(generator) == []


def test_next_goes_item_by_item() -> None:
    generator = count.remote(1)
    assert ray.get(next(generator)) == 0
    assert len(list(generator)) == 0


def test_a_generator_is_its_own_iterator() -> None:
    generator = count.remote(1)
    assert iter(generator) is generator


def test_items_are_given_to_tasks_as_they_come() -> None:
    @ray.remote
    def double(value: int) -> int:
        return 2 * value

    assert ray.get([double.remote(item) for item in count.remote(4)]) == [0, 2, 4, 6]


def test_an_item_is_kept_when_the_generator_is_gone() -> None:
    item = next(count.remote(3))
    assert ray.get(item) == 0


def test_an_error_comes_at_its_place() -> None:
    @ray.remote
    def fails() -> Iterator[int]:
        yield 1
        raise ValueError("second")

    seen = []
    with pytest.raises(ValueError, match="second"):
        for reference in fails.remote():
            seen.append(ray.get(reference))
    assert seen == [1]


def test_an_error_before_the_first_item_is_the_first_item() -> None:
    @ray.remote
    def fails() -> Iterator[int]:
        raise KeyError("at once")
        yield

    generator = fails.remote()
    with pytest.raises(KeyError):
        ray.get(next(generator))
    with pytest.raises(StopIteration):
        next(generator)


def test_a_generator_that_may_be_retried_begins_anew(tmp_path: Path) -> None:
    @ray.remote(max_retries=2, retry_exceptions=[OSError])
    def flaky() -> Iterator[int]:
        for index in range(4):
            if index == 2 and not (tmp_path / "failed").exists():
                (tmp_path / "failed").write_text("")
                raise OSError("again")
            yield index

    assert [ray.get(one) for one in flaky.remote()] == [0, 1, 2, 3]


def test_a_crash_in_the_middle_is_made_good(tmp_path: Path) -> None:
    @ray.remote(max_retries=1)
    def crashes() -> Iterator[int]:
        for index in range(4):
            if index == 2 and not (tmp_path / "crashed").exists():
                (tmp_path / "crashed").write_text("")
                os._exit(1)
            yield index

    assert [ray.get(one) for one in crashes.remote()] == [0, 1, 2, 3]


def test_a_crash_without_retries_is_the_last_item() -> None:
    @ray.remote(max_retries=0)
    def crashes() -> Iterator[int]:
        yield 1
        os._exit(1)

    generator = crashes.remote()
    with pytest.raises(WorkerCrashedError):
        for reference in generator:
            ray.get(reference)


def test_wait_says_which_generator_has_an_item(tmp_path: Path) -> None:
    @ray.remote(num_cpus=0)
    def late(folder: Path) -> Iterator[int]:
        while not (folder / "go").exists():
            time.sleep(0.01)
        yield 1

    slow, fast = late.remote(tmp_path), count.remote(1)
    ready, rest = ray.wait([slow, fast], timeout=60)
    assert (ready, rest) == ([fast], [slow])
    (tmp_path / "go").write_text("")
    ready, _ = ray.wait([slow], timeout=60)
    assert ray.get(next(ready[0])) == 1


def test_wait_mixes_references_and_generators() -> None:
    reference, generator = ray.put(1), count.remote(1)
    ready, rest = ray.wait([reference, generator], num_returns=2, timeout=60)
    assert (ready, rest) == ([reference, generator], [])


def test_a_generator_that_ended_is_ready() -> None:
    generator = count.remote(0)
    assert ray.wait([generator], timeout=60)[0] == [generator]
    assert next(generator, "ended") == "ended"


def test_completed_is_got_at_the_end() -> None:
    generator = count.remote(3)
    ray.get(generator.completed())
    assert [ray.get(one) for one in generator] == [0, 1, 2]


def test_a_generator_in_asyncio_is_read_by_async_for() -> None:
    async def read() -> list[int]:
        return [await reference async for reference in count.remote(3)]

    assert asyncio.run(read()) == [0, 1, 2]


def test_two_generators_are_read_side_by_side_in_asyncio() -> None:
    async def read(number: int) -> list[int]:
        return [await reference async for reference in count.remote(number)]

    async def both() -> list[list[int]]:
        return await asyncio.gather(read(2), read(3))

    assert asyncio.run(both()) == [[0, 1], [0, 1, 2]]


def test_a_generator_within_a_task_is_read_there() -> None:
    @ray.remote
    def total() -> int:
        return sum(ray.get(one) for one in count.remote(5))

    assert ray.get(total.remote()) == 10


def test_a_generator_of_generators() -> None:
    @ray.remote
    def outer() -> Iterator[int]:
        for reference in count.remote(3):
            yield 10 * ray.get(reference)

    assert [ray.get(one) for one in outer.remote()] == [0, 10, 20]


def test_a_generator_may_yield_references() -> None:
    @ray.remote
    def references() -> Iterator[Any]:
        for index in range(2):
            yield ray.put(index)

    assert [ray.get(ray.get(one)) for one in references.remote()] == [0, 1]


def test_a_generator_may_yield_none_and_large_and_small() -> None:
    @ray.remote
    def mixed() -> Iterator[Any]:
        yield None
        yield np.ones(300_000)
        yield "text"

    nothing, large, text = [ray.get(one) for one in mixed.remote()]
    assert (nothing, int(large.sum()), text) == (None, 300_000, "text")


def test_what_the_caller_does_not_read_does_not_stop_the_generator(tmp_path: Path, eventually: Eventually) -> None:
    @ray.remote
    def all_of(number: int) -> Iterator[int]:
        for index in range(number):
            yield index
        (tmp_path / "ended").write_text("")

    generator = all_of.remote(100)
    eventually((tmp_path / "ended").exists)
    assert ray.get(next(generator)) == 0


def test_back_pressure_holds_the_generator(tmp_path: Path, eventually: Eventually) -> None:
    @ray.remote(_generator_backpressure_num_objects=2)
    def slow() -> Iterator[int]:
        for index in range(6):
            (tmp_path / str(index)).write_text("")
            yield index

    generator = slow.remote()
    eventually((tmp_path / "1").exists)
    time.sleep(0.5)
    assert not (tmp_path / "4").exists()
    assert [ray.get(one) for one in generator] == list(range(6))


def test_a_cancelled_generator_ends_with_its_error(tmp_path: Path) -> None:
    @ray.remote
    def forever() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1
            time.sleep(0.01)

    generator = forever.remote()
    assert ray.get(next(generator)) == 0
    ray.cancel(generator)
    with pytest.raises((TaskCancelledError, RayTaskError)):
        for reference in generator:
            ray.get(reference)


def test_a_return_value_of_a_generator_is_dropped() -> None:
    @ray.remote
    def returns() -> Iterator[int]:
        yield 1
        return 2

    assert [ray.get(one) for one in returns.remote()] == [1]


def test_a_function_that_returns_a_generator_does_not_stream() -> None:
    with pytest.raises(ValueError, match="can only be used with generator functions"):

        @ray.remote(num_returns="streaming")
        def made() -> Any:
            return (index for index in range(3))


def test_a_fixed_number_of_returns_of_a_generator() -> None:
    one, two = count.options(num_returns=2).remote(2)
    assert ray.get([two, one]) == [1, 0]


def test_the_generator_has_the_class_of_ray() -> None:
    assert isinstance(count.remote(1), ray.ObjectRefGenerator)
    assert isinstance(count.remote(1), ray._raylet.ObjectRefGenerator)


def test_get_of_a_generator_is_the_generator() -> None:
    generator = count.remote(1)
    assert ray.get(generator) is generator
    with pytest.raises(TypeError):
        ray.get([count.remote(1)])


def test_a_generator_cannot_be_an_argument() -> None:
    with pytest.raises((ValueError, TypeError)):
        count.remote(count.remote(1))


def test_many_items_keep_their_order() -> None:
    assert ray.get(list(count.remote(500))) == list(range(500))
