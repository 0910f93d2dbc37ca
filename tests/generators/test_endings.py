"""Generators that raise, whose workers die, that are run again, or that nobody reads any more."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import ray
from oxiray import _core
from oxiray.exceptions import (
    ActorDiedError,
    RayTaskError,
    StreamingGeneratorReplayInconsistentError,
    TaskCancelledError,
    WorkerCrashedError,
)
from watching import wait_until

pytestmark = pytest.mark.usefixtures("nothing_left")


@ray.remote
def until_error(number: int) -> Iterator[int]:
    yield from range(number)
    raise KeyError("no more")


@ray.remote
def endless(path: str, size: int = 1) -> Iterator[bytes]:
    """Writes a line when it is closed."""
    try:
        while True:
            yield b"x" * size
    finally:
        Path(path).open("a").write("closed\n")


@ray.remote(num_cpus=2)
def hold(begun: str, go: str) -> None:
    """Keeps others from beginning."""
    Path(begun).touch()
    while not Path(go).exists():
        pass


def test_an_error_is_the_last_item() -> None:
    generator = until_error.remote(2)
    references = list(generator)
    assert ray.get(references[:2]) == [0, 1] and len(references) == 3
    with pytest.raises(KeyError, match="no more") as caught:
        ray.get(references[2])
    assert isinstance(caught.value, RayTaskError)
    assert ray.get(generator.completed()) is None and generator.is_finished()


def test_an_error_before_the_first_item() -> None:
    generator = until_error.remote(0)
    with pytest.raises(KeyError):
        ray.get(next(generator))
    assert list(generator) == []


def test_an_item_that_cannot_be_serialized_ends_the_stream(journal: Any) -> None:
    @ray.remote
    def bad(path: str) -> Iterator[Any]:
        try:
            yield 1
            yield (index for index in range(3))
        finally:
            Path(path).open("a").write("closed\n")

    references = list(bad.remote(journal.path))
    assert ray.get(references[0]) == 1 and len(references) == 2
    with pytest.raises(TypeError, match="generator"):
        ray.get(references[1])
    assert journal() == ["closed"]


def test_a_failed_argument_is_the_only_item() -> None:
    @ray.remote
    def fail() -> int:
        raise ValueError("bad argument")

    @ray.remote
    def count(_: int) -> Iterator[int]:
        yield 1

    generator = count.remote(fail.remote())
    references = list(generator)
    assert len(references) == 1
    for reference in (*references, generator.completed()):
        with pytest.raises(ValueError, match="bad argument"):
            ray.get(reference)


@ray.remote
def die_once(path: str, at: int, number: int, size: int = 1) -> Iterator[Any]:
    """Kills its process at item `at`, the first time; each attempt leaves a line."""
    first = not Path(path).exists()
    Path(path).open("a").write("begun\n")
    for index in range(number):
        if first and index == at:
            os.kill(os.getpid(), signal.SIGKILL)
        yield numpy.full(size, index, dtype=numpy.int64)


@pytest.mark.parametrize("size", [1, 50_000], ids=["inline", "stored"])
def test_a_death_in_the_middle_is_made_good(journal: Any, size: int) -> None:
    generator = die_once.remote(journal.path, 3, 6, size)
    first = next(generator)
    references = [first, *generator]
    assert [int(ray.get(reference)[-1]) for reference in references] == list(range(6))
    assert len(set(references)) == 6 and journal() == ["begun", "begun"]
    assert ray.get(generator.completed()) is None


@ray.remote(max_retries=0)
def die_when_read(path: str) -> Iterator[int]:
    yield 0
    yield 1
    while not Path(path).exists():
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_death_without_retries_is_the_last_item(tmp_path: Path) -> None:
    generator = die_when_read.remote(str(tmp_path / "read"))
    assert [ray.get(next(generator)) for _ in range(2)] == [0, 1]
    (tmp_path / "read").touch()
    for reference in (next(generator), generator.completed()):
        with pytest.raises(WorkerCrashedError, match="die_when_read"):
            ray.get(reference)
    assert list(generator) == []


def test_a_second_run_that_yields_less_is_told_apart(journal: Any) -> None:
    @ray.remote
    def shorter(path: str) -> Iterator[int]:
        first = not Path(path).exists()
        Path(path).open("a").write("begun\n")
        for index in range(5 if first else 2):
            yield index
        if first:
            while not Path(path + ".read").exists():
                pass
            os.kill(os.getpid(), signal.SIGKILL)

    generator = shorter.remote(journal.path)
    assert ray.get([next(generator) for _ in range(5)]) == [0, 1, 2, 3, 4]
    Path(journal.path + ".read").touch()
    with pytest.raises(StreamingGeneratorReplayInconsistentError, match="yielded 2 items where 5 had arrived"):
        ray.get(next(generator))
    assert list(generator) == []


def test_exceptions_are_retried_where_asked(journal: Any) -> None:
    @ray.remote(retry_exceptions=[ValueError], max_retries=2)
    def flaky(path: str) -> Iterator[int]:
        Path(path).open("a").write("begun\n")
        attempt = len(Path(path).read_text().split())
        for index in range(4):
            if index == attempt:
                raise ValueError(f"attempt {attempt}")
            yield 10 * index

    references = list(flaky.remote(journal.path))
    assert ray.get(references[:3]) == [0, 10, 20] and journal() == ["begun"] * 3
    with pytest.raises(ValueError, match="attempt 3"):
        ray.get(references[3])
    assert len(references) == 4


@pytest.mark.parametrize("size", [1, 200_000], ids=["inline", "stored"])
def test_a_reader_that_goes_closes_the_generator(journal: Any, size: int) -> None:
    generator = endless.options(_generator_backpressure_num_objects=8).remote(journal.path, size)
    for _ in range(3):
        next(generator)
    del generator
    gc.collect()
    wait_until(lambda: journal() == ["closed"])


def test_a_reader_that_goes_closes_one_that_runs_free(journal: Any) -> None:
    generator = endless.remote(journal.path)
    for _ in range(1000):
        next(generator)
    del generator
    gc.collect()
    wait_until(lambda: journal() == ["closed"])


def test_a_reader_that_gives_up_waiting_stops_a_call_that_has_not_begun(tmp_path: Path, journal: Any) -> None:
    holding = hold.remote(str(tmp_path / "begun"), str(tmp_path / "go"))
    wait_until((tmp_path / "begun").exists)
    generator = endless.remote(journal.path)
    assert generator._next_sync(0).is_nil()
    del generator
    gc.collect()
    (tmp_path / "go").touch()
    ray.get(holding)
    assert ray.get(ray.remote(lambda: 1).remote()) == 1
    assert journal() == []


def test_a_call_whose_items_nobody_asked_for_is_run_for_what_it_does(journal: Any) -> None:
    @ray.remote(_generator_backpressure_num_objects=1)
    def write(path: str) -> Iterator[int]:
        for index in range(4):
            Path(path).open("a").write(f"{index}\n")
            yield index

    write.remote(journal.path)
    wait_until(lambda: journal() == ["0", "1", "2", "3"])


def test_unread_items_are_freed() -> None:
    @ray.remote
    def some(number: int) -> Iterator[Any]:
        for index in range(number):
            yield [index, ray.put(index)] if index % 2 else numpy.full(50_000, index)

    generator = some.remote(10)
    ray.get(generator.completed())
    kept = next(generator)
    before = _core.objects_known()
    del generator
    gc.collect()
    wait_until(lambda: _core.objects_known() < before)
    assert ray.get(kept)[0] == 0


def test_a_stopped_generator_may_complain(journal: Any) -> None:
    @ray.remote(_generator_backpressure_num_objects=1)
    def stubborn(path: str) -> Iterator[int]:
        try:
            while True:
                yield 1
        except GeneratorExit:
            Path(path).open("a").write("closing\n")
            raise RuntimeError("not now") from None

    generator = stubborn.remote(journal.path)
    next(generator)
    del generator
    gc.collect()
    wait_until(lambda: journal() == ["closing"])
    assert ray.get(ray.remote(lambda: 1).remote()) == 1


def test_a_stop_reaches_a_worker_whose_generator_was_retried(journal: Any) -> None:
    generator = die_once.options(_generator_backpressure_num_objects=2).remote(journal.path, 2, 1_000_000)
    for _ in range(4):
        next(generator)
    del generator
    gc.collect()

    @ray.remote(num_cpus=2)
    def alone() -> int:
        return 1

    assert ray.get(alone.remote(), timeout=20) == 1


def test_a_dead_actor_is_the_last_item(tmp_path: Path) -> None:
    @ray.remote
    class Actor:
        def count(self, path: str) -> Iterator[int]:
            yield 1
            while not Path(path).exists():
                pass
            os.kill(os.getpid(), signal.SIGKILL)

    generator = Actor.remote().count.remote(str(tmp_path / "read"))
    assert ray.get(next(generator)) == 1
    (tmp_path / "read").touch()
    for reference in (next(generator), generator.completed()):
        with pytest.raises(ActorDiedError):
            ray.get(reference)


def test_an_event_loop_hears_of_a_death(tmp_path: Path) -> None:
    async def read() -> list[Any]:
        found: list[Any] = []
        async for reference in die_when_read.remote(str(tmp_path / "read")):
            try:
                found.append(await reference)
                if found == [0, 1]:
                    (tmp_path / "read").touch()
            except WorkerCrashedError:
                found.append("died")
        return found

    assert asyncio.run(read()) == [0, 1, "died"]


def test_cancel_stops_a_generator_and_keeps_what_was_yielded(journal: Any) -> None:
    @ray.remote
    def stuck(path: str) -> Iterator[int]:
        try:
            yield 1
            while True:
                pass
        finally:
            Path(path).open("a").write("closed\n")

    generator = stuck.remote(journal.path)
    first = next(generator)
    ray.cancel(generator)
    with pytest.raises(TaskCancelledError):
        ray.get(next(generator), timeout=20)
    assert list(generator) == [] and ray.get(first) == 1 and journal() == ["closed"]


def test_cancel_reaches_a_generator_that_waits_for_its_reader(journal: Any) -> None:
    generator = endless.options(_generator_backpressure_num_objects=2).remote(journal.path)
    next(generator)
    ray.cancel(generator)
    *_, last = generator
    with pytest.raises(TaskCancelledError):
        ray.get(last)
    assert journal() == ["closed"]


def test_cancel_before_the_first_item(tmp_path: Path, journal: Any) -> None:
    holding = hold.remote(str(tmp_path / "begun"), str(tmp_path / "go"))
    wait_until((tmp_path / "begun").exists)
    generator = endless.remote(journal.path)
    ray.cancel(generator)
    (reference,) = generator
    with pytest.raises(TaskCancelledError, match="never ran"):
        ray.get(reference)
    (tmp_path / "go").touch()
    ray.get(holding)
    assert journal() == []
