"""A store that is too small for what is asked of it: what waits, what goes to disk, what is refused."""

from __future__ import annotations

import gc
import os

import numpy
import pytest
import ray
from oxiray import _core, _session

from spilled import MIB, SIZE, STORE, damage, spill, store
from watching import wait_until


@ray.remote
def make(value):
    return numpy.full(SIZE, value, dtype=numpy.uint8)


@ray.remote
def firsts(*arrays):
    return [int(array[0]) for array in arrays]


def memory_files(pid: object) -> int:
    """Memory files that a process has open."""
    count = 0
    for entry in os.scandir(f"/proc/{pid}/fd"):
        try:
            count += "memfd:oxiray-object" in os.readlink(entry.path)
        except OSError:
            continue
    return count


def test_more_than_the_store_holds_can_be_read_at_once(cluster) -> None:
    cluster(object_store_memory=STORE)
    references = [ray.put(numpy.full(SIZE, value, dtype=numpy.uint8)) for value in range(12)]
    arrays = ray.get(references, timeout=60)
    assert store()["used"] <= STORE
    for value, array in enumerate(arrays):
        assert array.nbytes == SIZE and (array == value).all() and not array.flags.writeable
    again = ray.get(references, timeout=60)
    assert [int(array[-1]) for array in again] == list(range(12))
    del references
    gc.collect()
    assert [int(array[-1]) for array in arrays] == list(range(12)), "views outlive the references"
    del arrays, array, again
    gc.collect()
    wait_until(lambda: store()["objects"] == 0 and store()["spilled"] == 0)


def test_a_task_takes_more_than_the_store_holds(cluster) -> None:
    cluster(object_store_memory=STORE)
    assert ray.get(firsts.remote(*[make.remote(value) for value in range(10)]), timeout=60) == list(range(10))


def test_what_is_read_from_disk_is_checked(cluster) -> None:
    cluster(object_store_memory=STORE)
    kept = ray.put(numpy.zeros(SIZE, dtype=numpy.uint8))
    spill(kept)
    damage()
    reading = ray.get([ray.put(numpy.zeros(SIZE, dtype=numpy.uint8)) for _ in range(STORE // SIZE)])
    assert store()["used"] > STORE - SIZE
    with pytest.raises(ray.exceptions.ObjectReconstructionFailedError):
        ray.get(kept, timeout=30)
    assert len(reading) == STORE // SIZE


def test_producers_wait_for_room_and_all_results_are_right(cluster) -> None:
    cluster(object_store_memory=STORE)
    references = [make.remote(value) for value in range(24)]
    assert [int(ray.get(reference, timeout=60)[0]) for reference in references] == list(range(24))
    assert store()["used"] <= STORE


def test_memory_files_are_as_few_as_the_objects_in_them(cluster) -> None:
    cluster(object_store_memory=STORE)
    before = memory_files(_session._daemon_pid)
    for _ in range(3):
        references = [ray.put(numpy.zeros(MIB, dtype=numpy.uint8)) for _ in range(40)]
        assert memory_files(_session._daemon_pid) - before <= 80
        del references
        gc.collect()
        wait_until(lambda: store()["objects"] == 0)
    assert memory_files("self") == 0, "mapped, not open"
    assert memory_files(_session._daemon_pid) - before <= STORE // MIB
    assert _core.figures()["segments"] <= 2 * STORE // MIB
