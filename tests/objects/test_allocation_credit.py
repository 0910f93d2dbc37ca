"""A program that puts one object after the other is lent room for the next: nothing of that is seen, kept or lost."""

from __future__ import annotations

import os
import signal

import numpy
import ray
import settled
from oxiray import _core
from spilled import MIB

SIZE = MIB


def numbered(number: int) -> numpy.ndarray:
    return numpy.full(SIZE, number % 256, dtype=numpy.uint8)


def store() -> dict[str, int]:
    found: dict[str, int] = _core.cluster()["store"]
    return found


def test_what_is_put_in_a_loop_is_right_and_leaves_nothing(small_store) -> None:
    assert not settled.settle(), "before"
    for start in range(0, 100, 4):
        references = [ray.put(numbered(start + offset)) for offset in range(4)]
        assert [int(array[-1]) for array in ray.get(references)] == list(range(start, start + 4))
        del references
    kept = ray.put(numbered(7))
    objects = _core.holdings()[0]
    assert [found["object"] for found in objects] == [kept.hex()], "room for the next object is none"
    assert store()["objects"] == 1
    del kept, objects
    assert not settled.settle()


def test_a_store_that_is_almost_full_spills_nothing_for_room_ahead(small_store) -> None:
    assert not settled.settle(), "before"
    references = [ray.put(numbered(number)) for number in range(70)]
    found = store()
    assert found["spilled"] == 0 and found["objects"] == 70
    assert [int(array[0]) for array in ray.get(references)] == list(range(70))
    del references
    assert not settled.settle()


def test_arguments_by_value_arrive_as_they_were_sent(small_store) -> None:
    @ray.remote
    def ends(array):
        return int(array[0]), int(array[-1])

    called = [ends.remote(numbered(number)) for number in range(30)]
    assert ray.get(called) == [(number, number) for number in range(30)]
    for number in range(30):
        assert ray.get(ends.remote(numbered(number))) == (number, number)
    del called
    assert not settled.settle()


def test_a_worker_that_dies_with_room_gives_it_back(small_store) -> None:
    @ray.remote(max_retries=0)
    def dies():
        for number in range(8):
            ray.put(numbered(number))
        os.kill(os.getpid(), signal.SIGKILL)

    assert not settled.settle(), "before"
    references = [dies.remote() for _ in range(4)]
    for reference in references:
        try:
            ray.get(reference)
        except ray.exceptions.WorkerCrashedError:
            continue
        raise AssertionError("it died")
    del references, reference
    assert not settled.settle()
