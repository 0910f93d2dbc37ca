"""Tasks that yield their results: what their callers read, and when."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import ray
from watching import wait_until

pytestmark = pytest.mark.usefixtures("nothing_left")


@ray.remote
def count(number: int) -> Iterator[int]:
    yield from range(number)


@ray.remote
def gated(folder: str, number: int) -> Iterator[int]:
    """Yields 0, then one more for each file that appears in `folder`."""
    for index in range(number):
        while index > 0 and not Path(folder, str(index)).exists():
            time.sleep(0.002)
        yield index


def test_items_come_in_order_and_end() -> None:
    generator = count.remote(5)
    assert isinstance(generator, ray.ObjectRefGenerator)
    assert [ray.get(reference) for reference in generator] == [0, 1, 2, 3, 4]
    with pytest.raises(StopIteration):
        next(generator)


def test_an_item_can_be_used_while_the_task_runs_on(tmp_path: Path) -> None:
    generator = gated.remote(str(tmp_path), 2)
    assert ray.get(next(generator)) == 0
    assert not generator.next_ready() and not generator.is_finished()
    (tmp_path / "1").touch()
    assert ray.get(next(generator)) == 1
    assert list(generator) == [] and generator.is_finished()


def test_ten_thousand_items() -> None:
    assert [ray.get(reference) for reference in count.remote(10_000)] == list(range(10_000))


def test_references_outlive_their_generator() -> None:
    references = list(count.remote(3))
    gc.collect()
    assert ray.get(references) == [0, 1, 2]


def test_large_items_lie_in_the_store() -> None:
    @ray.remote
    def arrays() -> Iterator[Any]:
        for index in range(4):
            yield numpy.full(1 << 20, index, dtype=numpy.uint8)

    found = [ray.get(reference) for reference in arrays.remote()]
    assert [(array[0], array[-1], array.nbytes) for array in found] == [(i, i, 1 << 20) for i in range(4)]
    del found


def test_items_are_arguments_like_any_reference() -> None:
    @ray.remote
    def double(value: int) -> int:
        return 2 * value

    assert ray.get([double.remote(reference) for reference in count.remote(4)]) == [0, 2, 4, 6]


def test_items_may_contain_references() -> None:
    @ray.remote
    def wrapped() -> Iterator[list[Any]]:
        for index in range(3):
            yield [ray.put(index)]

    assert [ray.get(ray.get(reference)[0]) for reference in wrapped.remote()] == [0, 1, 2]


def test_completed_is_ready_when_the_task_has_ended(tmp_path: Path) -> None:
    generator = gated.remote(str(tmp_path), 2)
    completed = generator.completed()
    assert completed == generator.completed()
    assert ray.wait([completed], timeout=0) == ([], [completed])
    (tmp_path / "1").touch()
    assert ray.get(completed) is None
    assert not generator.is_finished(), "its items were not read yet"
    assert len(list(generator)) == 2 and generator.is_finished()


def test_completed_alone_keeps_the_task_running(journal: Any) -> None:
    @ray.remote
    def write(path: str) -> Iterator[int]:
        for index in range(3):
            Path(path).open("a").write(f"{index}\n")
            yield index

    generator = write.remote(journal.path)
    next(generator)
    completed = generator.completed()
    del generator
    assert ray.get(completed) is None
    assert journal() == ["0", "1", "2"]


def test_get_returns_a_generator_as_it_is() -> None:
    generator = count.remote(1)
    assert ray.get(generator) is generator
    with pytest.raises(TypeError, match="ObjectRef"):
        ray.get([generator])
    assert len(list(generator)) == 1


def test_wait_takes_generators(tmp_path: Path) -> None:
    generator, other = gated.remote(str(tmp_path), 2), ray.put(1)
    assert ray.wait([generator, other], num_returns=2, timeout=20) == ([generator, other], [])
    next(generator)
    assert ray.wait([generator], timeout=0) == ([], [generator])
    assert ray.wait([generator, other], timeout=20) == ([other], [generator])
    (tmp_path / "1").touch()
    assert ray.wait([generator], timeout=20) == ([generator], [])
    next(generator)
    ray.get(generator.completed())
    assert ray.wait([generator], timeout=20) == ([generator], []), "its end is something to read"
    with pytest.raises(ValueError, match="twice"):
        ray.wait([generator, generator])
    with pytest.raises(TypeError, match="list"):
        ray.wait(generator)


def test_a_generator_that_yields_nothing() -> None:
    generator = count.remote(0)
    assert list(generator) == [] and generator.is_finished() and not generator.next_ready()


def test_many_generators_at_once() -> None:
    generators = [count.remote(200) for _ in range(20)]
    read: list[list[int]] = [[] for _ in generators]
    for _ in range(200):
        for numbers, generator in zip(read, generators, strict=True):
            numbers.append(ray.get(next(generator)))
    assert read == [list(range(200))] * 20
    assert all(list(generator) == [] for generator in generators)


def test_a_generator_is_not_passed_on() -> None:
    @ray.remote
    def take(value: Any) -> None:
        pass

    generator = count.remote(2)
    for refused in (lambda: take.remote(generator), lambda: ray.put([generator]), lambda: pickle.dumps(generator)):
        with pytest.raises(TypeError, match="pass the references that it yields"):
            refused()
    assert len(list(generator)) == 2

    @ray.remote
    def give() -> Any:
        return count.remote(1)

    with pytest.raises(TypeError, match="cannot be passed on"):
        ray.get(give.remote())


def test_tasks_read_generators_too() -> None:
    @ray.remote
    def total(number: int) -> int:
        return sum(ray.get(reference) for reference in count.remote(number))

    assert ray.get(total.remote(100)) == 4950


def test_what_python_generators_have_and_these_have_not() -> None:
    generator = count.remote(1)
    for unsupported in (lambda: generator.send(1), lambda: generator.throw(ValueError()), generator.close, generator.aclose):
        with pytest.raises(NotImplementedError, match="Drop the ObjectRefGenerator"):
            unsupported()
    assert len(list(generator)) == 1


def test_a_number_of_results_is_taken_from_a_generator() -> None:
    assert ray.get(count.options(num_returns=1).remote(5)) == 0
    assert ray.get(count.options(num_returns=2).remote(5)) == [0, 1]
    with pytest.raises(ValueError, match="Task returned 2 objects, but num_returns=3"):
        ray.get(count.options(num_returns=3).remote(2))


def test_only_generators_stream() -> None:
    @ray.remote
    def plain() -> int:
        return 1

    with pytest.raises(ValueError, match="only be used with generator functions"):
        plain.options(num_returns="streaming")
    with pytest.warns(DeprecationWarning):
        assert len(ray.get(count.options(num_returns="dynamic").remote(3))) == 3


def test_several_objects_per_yield() -> None:
    @ray.remote(_num_objects_per_yield=2)
    def pairs() -> Iterator[Any]:
        yield 1, 2
        yield [3, 4]
        yield 5

    references = list(pairs.remote())
    assert ray.get(references[:4]) == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="tuple or list of that length"):
        ray.get(references[4])
    with pytest.raises(ValueError, match="say it in the decorator"):
        pairs.options(_num_objects_per_yield=3)


def test_next_within_a_time(tmp_path: Path) -> None:
    generator = gated.remote(str(tmp_path), 2)
    assert ray.get(generator._next_sync(20)) == 0
    assert generator._next_sync(0).is_nil() and generator._next_sync(0.01).is_nil()
    (tmp_path / "1").touch()
    assert ray.get(generator._next_sync()) == 1
    with pytest.raises(StopIteration):
        generator._next_sync()


def test_read_in_an_event_loop(tmp_path: Path) -> None:
    async def read() -> list[int]:
        generator = gated.remote(str(tmp_path), 3)
        numbers = []
        async for reference in generator:
            numbers.append(await reference)
            (tmp_path / str(len(numbers))).touch()
        with pytest.raises(StopAsyncIteration):
            await anext(generator)
        return numbers

    async def both() -> list[list[int]]:
        async def all_of(number: int) -> list[int]:
            return [await reference async for reference in count.remote(number)]

        return list(await asyncio.gather(all_of(50), all_of(70)))

    assert asyncio.run(read()) == [0, 1, 2]
    assert asyncio.run(both()) == [list(range(50)), list(range(70))]


def test_async_generators_are_tasks_too() -> None:
    @ray.remote
    async def slowly(number: int) -> Any:
        for index in range(number):
            await asyncio.sleep(0)
            yield index

    assert [ray.get(reference) for reference in slowly.remote(3)] == [0, 1, 2]


@pytest.mark.parametrize("ahead", [1, 3])
def test_back_pressure_stops_the_producer(journal: Any, ahead: int) -> None:
    @ray.remote(_generator_backpressure_num_objects=ahead)
    def write(path: str) -> Iterator[int]:
        for index in range(6):
            Path(path).open("a").write(f"{index}\n")
            yield index

    generator = write.remote(journal.path)
    for read in range(6):
        begun = min(read + ahead, 6)
        wait_until(lambda begun=begun: len(journal()) == begun)
        # Were it not held back, it would be through by the time that another task has run.
        ray.get(ray.remote(os.getpid).remote())
        assert len(journal()) == begun
        assert ray.get(next(generator)) == read
    assert list(generator) == []


def test_a_paused_producer_goes_on_while_another_thread_waits_for_something_else(tmp_path: Path) -> None:
    other = gated.remote(str(tmp_path), 2)
    assert ray.get(next(other)) == 0
    told: list[Any] = []
    waiting = threading.Thread(target=lambda: told.extend(ray.wait([other], timeout=30)))
    waiting.start()
    wait_until(lambda: Path(f"/proc/self/task/{waiting.native_id}/stat").read_text().split(") ")[1][0] == "S")
    # Each item is yielded when the one before it is known to have been read.
    paused = count.options(_generator_backpressure_num_objects=1).remote(200)
    assert [ray.get(item) for item in paused] == list(range(200))
    assert waiting.is_alive() and not told
    (tmp_path / "1").touch()
    waiting.join()
    assert ray.get(next(other)) == 1


def test_a_paused_producer_lends_its_cpu() -> None:
    @ray.remote(num_cpus=2, _generator_backpressure_num_objects=1)
    def produce() -> Generator[int, None, None]:
        yield from range(3)

    @ray.remote(num_cpus=2)
    def double(value: int) -> int:
        return 2 * value

    assert [ray.get(double.remote(reference)) for reference in produce.remote()] == [0, 2, 4]


def test_the_session_ends_under_a_reader(tmp_path: Path) -> None:
    """A generator of a connection that ended says so."""
    import subprocess
    import sys

    program = """
import ray
ray.init(num_cpus=1)
@ray.remote
def count():
    import time
    yield 1
    time.sleep(60)
generator = count.remote()
assert ray.get(next(generator)) == 1
ray.shutdown()
for ask in (generator.next_ready, generator.is_finished, generator.completed):
    try:
        ask()
    except (RuntimeError, ValueError) as error:
        print(type(error).__name__)
ray.init(num_cpus=1)
try:
    ray.wait([generator])
except ValueError as error:
    print(error)
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, cwd=tmp_path)
    assert out.stdout.split("\n")[:3] == ["RuntimeError"] * 3, out.stdout + out.stderr
    assert "of a connection that has ended" in out.stdout


