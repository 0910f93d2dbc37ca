"""Actors whose methods yield: one at a time, in threads, on an event loop."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import ray
from watching import wait_until

pytestmark = pytest.mark.usefixtures("nothing_left")


@ray.remote
class Plain:
    def __init__(self) -> None:
        self.begun = 0

    def count(self, number: int) -> Iterator[int]:
        self.begun += 1
        yield from range(number)

    @ray.method(num_returns=2)
    def two(self) -> Iterator[int]:
        yield from range(5)

    @ray.method(_generator_backpressure_num_objects=2, num_returns="streaming")
    def write(self, path: str) -> Iterator[int]:
        try:
            for index in range(100):
                Path(path).open("a").write(f"{index}\n")
                yield index
        finally:
            Path(path).open("a").write("closed\n")

    def fail(self, number: int) -> Iterator[int]:
        yield from range(number)
        raise ValueError("enough")

    def calls(self) -> int:
        return self.begun


def test_a_method_that_yields() -> None:
    actor = Plain.remote()
    first, second = actor.count.remote(3), actor.count.remote(1000)
    assert isinstance(first, ray.ObjectRefGenerator)
    assert [ray.get(reference) for reference in first] == [0, 1, 2]
    assert [ray.get(reference) for reference in second] == list(range(1000))
    assert ray.get(actor.calls.remote()) == 2


def test_a_method_with_a_number_of_results() -> None:
    actor = Plain.remote()
    assert ray.get(actor.two.remote()) == [0, 1]
    assert ray.get(actor.count.options(num_returns=1).remote(5)) == 0
    with pytest.raises(ValueError, match="only be used with generator functions"):
        actor.calls.options(num_returns="streaming")
    with pytest.raises(ValueError, match="only be used with generator functions"):

        @ray.method(num_returns="streaming")
        def plain() -> None: ...


def test_a_method_that_raises() -> None:
    actor = Plain.remote()
    references = list(actor.fail.remote(2))
    assert ray.get(references[:2]) == [0, 1]
    with pytest.raises(ValueError, match="enough"):
        ray.get(references[2])
    assert ray.get(actor.calls.remote()) == 0, "it lives on"


def test_a_method_is_held_back_and_closed(journal: Any) -> None:
    actor = Plain.remote()
    generator = actor.write.remote(journal.path)
    next(generator)
    wait_until(lambda: journal() == ["0", "1", "2"])
    del generator
    gc.collect()
    assert ray.get(actor.calls.remote()) == 0
    assert journal() == ["0", "1", "2", "closed"]


def test_a_call_behind_others_is_stopped_before_it_begins(journal: Any) -> None:
    actor = Plain.remote()
    running, waiting = actor.write.remote(journal.path), actor.write.remote(journal.path)
    next(running)
    assert waiting._next_sync(0).is_nil()
    del waiting
    gc.collect()
    del running
    gc.collect()
    ray.get(actor.calls.remote())
    assert journal().count("closed") == 1


def test_threads_yield_at_once() -> None:
    @ray.remote(max_concurrency=2)
    class Threaded:
        def __init__(self) -> None:
            self.meeting = threading.Barrier(2)

        def meet(self, name: str) -> Iterator[str]:
            for _ in range(5):
                self.meeting.wait(20)
                yield name

    actor = Threaded.remote()
    one, other = actor.meet.remote("one"), actor.meet.remote("other")
    pairs = [(ray.get(a), ray.get(b)) for a, b in zip(one, other, strict=True)]
    assert pairs == [("one", "other")] * 5


@ray.remote
class Async:
    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.at_the_gate = 0

    async def count(self, number: int) -> AsyncIterator[int]:
        for index in range(number):
            await asyncio.sleep(0)
            yield index

    async def wait_at_gate(self, name: int) -> AsyncIterator[int]:
        self.at_the_gate += 1
        yield name
        await self.gate.wait()
        yield -name

    async def open_gate(self) -> int:
        self.gate.set()
        return self.at_the_gate

    def plain(self, number: int) -> Iterator[int]:
        yield from range(number)

    async def fail(self) -> AsyncIterator[int]:
        yield 1
        raise ValueError("enough")

    @ray.method(_generator_backpressure_num_objects=2)
    async def write(self, path: str) -> AsyncIterator[Any]:
        try:
            for index in range(100):
                Path(path).open("a").write(f"{index}\n")
                yield numpy.full(50_000, index)
        finally:
            Path(path).open("a").write("closed\n")


def test_an_event_loop_runs_many_at_once() -> None:
    actor = Async.remote()
    generators = [actor.wait_at_gate.remote(name) for name in range(1, 101)]
    assert [ray.get(next(generator)) for generator in generators] == list(range(1, 101))
    assert ray.get(actor.open_gate.remote()) == 100
    assert [ray.get(next(generator)) for generator in generators] == [-name for name in range(1, 101)]
    assert all(list(generator) == [] for generator in generators)


def test_an_event_loop_runs_generators_of_both_kinds() -> None:
    actor = Async.remote()
    assert [ray.get(reference) for reference in actor.count.remote(500)] == list(range(500))
    assert [ray.get(reference) for reference in actor.plain.remote(500)] == list(range(500))
    references = list(actor.fail.remote())
    assert ray.get(references[0]) == 1
    with pytest.raises(ValueError, match="enough"):
        ray.get(references[1])


def test_an_event_loop_holds_back_without_standing_still(journal: Any) -> None:
    actor = Async.remote()
    held = [actor.write.remote(f"{journal.path}{number}") for number in range(40)]
    generator = actor.write.remote(journal.path)
    for index in range(5):
        assert ray.get(next(generator))[0] == index
        wait_until(lambda index=index: len(journal()) == index + 3)
    assert len(list(actor.count.remote(10))) == 10, "others go on meanwhile"
    assert [int(ray.get(next(one))[0]) for one in held] == [0] * 40
    del generator, held
    gc.collect()
    wait_until(lambda: journal()[-1] == "closed")
    assert len(journal()) == 8


def test_actors_read_generators_in_their_event_loop() -> None:
    @ray.remote
    class Reader:
        async def total(self, actor: Any) -> int:
            return sum([await reference async for reference in actor.count.remote(100)])

    assert ray.get(Reader.remote().total.remote(Async.remote())) == 4950


def test_cancel_stops_the_methods_of_every_kind_of_actor(journal: Any) -> None:
    for number, actor in enumerate((Plain.remote(), Async.remote())):
        path = f"{journal.path}{number}"
        generator = actor.write.remote(path)
        first = next(generator)
        ray.cancel(generator)
        *_, last = generator
        with pytest.raises(ray.exceptions.TaskCancelledError):
            ray.get(last)
        assert ray.get(first) is not None
        wait_until(lambda path=path: Path(path).read_text().endswith("closed\n"))


def test_a_method_that_ends_its_actor_ends_its_items() -> None:
    @ray.remote
    class Leaver:
        def count(self) -> Iterator[int]:
            yield 1
            yield 2
            ray.actor.exit_actor()

    actor = Leaver.remote()
    generator = actor.count.remote()
    # What was yielded is there; that it is not all is not passed over in silence.
    *items, last = generator
    assert ray.get(items) == [1, 2]
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(last)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(next(actor.count.remote()))
