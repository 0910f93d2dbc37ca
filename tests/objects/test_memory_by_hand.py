"""Giving objects up by hand, and seeing who keeps what."""

from __future__ import annotations

import gc
import time

import numpy
import pytest
import ray
from oxiray import _core
from ray._private.internal_api import free, memory_summary

from spilled import MIB, store
from watching import wait_until

pytestmark = pytest.mark.usefixtures("two_cpus")


def line_of(name):
    """What the summary says of an object; empty where it is gone."""
    return "".join(line for line in memory_summary(units="MB").splitlines() if line.startswith(name))


@ray.remote
def ones():
    return numpy.ones(MIB)


@ray.remote
def small():
    return "small"


@ray.remote
def total(array):
    return float(array.sum())


@ray.remote
class Holder:
    def hold(self, box):
        self.box = box

    def read(self):
        return float(ray.get(self.box[0]).sum())

    def free(self):
        free(self.box)

    def drop(self):
        self.box = None


def test_freed_objects_say_so() -> None:
    large, little, put = ones.remote(), small.remote(), ray.put(numpy.ones(MIB))
    seen = ray.get([large, little, put])[0]
    before = store()["objects"]
    free([large, little, put])
    for reference in (large, little, put):
        with pytest.raises(ray.exceptions.ObjectFreedError, match=reference.hex()):
            ray.get(reference)
    assert seen.sum() == MIB, "what was read stays"
    with pytest.raises(ray.exceptions.ObjectFreedError):
        ray.get(total.remote(put), timeout=20)
    del seen
    gc.collect()
    wait_until(lambda: store()["objects"] == before - 2)


def test_a_freed_object_is_not_made_again(tmp_path) -> None:
    log = tmp_path / "log"

    @ray.remote
    def make():
        with open(log, "a") as file:
            file.write("x")
        return numpy.ones(MIB)

    reference = make.remote()
    ray.wait([reference])
    free(reference)
    with pytest.raises(ray.exceptions.ObjectFreedError):
        ray.get(reference)
    assert log.read_text() == "x"


def test_freed_by_or_for_another_process() -> None:
    holder = Holder.remote()
    mine, theirs = ones.remote(), ones.remote()
    # Freeing what has no value yet does nothing.
    ray.wait([mine, theirs], num_returns=2)
    ray.get(holder.hold.remote([mine]))
    assert ray.get(holder.read.remote()) == MIB
    free([mine])
    # Word of it goes by way of the daemon, and a call or its reply straight to the other process.
    with pytest.raises(ray.exceptions.ObjectFreedError):
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            ray.get(holder.read.remote(), timeout=20)
    ray.get(holder.hold.remote([theirs]))
    ray.get(holder.free.remote())
    with pytest.raises(ray.exceptions.ObjectFreedError):
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            ray.get(theirs, timeout=20)


def test_free_takes_references_and_leaves_pending_ones() -> None:
    with pytest.raises(TypeError):
        free("no reference")
    with pytest.raises(TypeError):
        free([1])
    free([])

    @ray.remote
    def slow(gate):
        ray.get(gate.read.remote())
        return "done"

    gate = Holder.remote()
    pending = slow.remote(gate)
    free(pending)
    ray.get(gate.hold.remote([ray.put(numpy.ones(3))]))
    outcomes = (ray.exceptions.RayTaskError,)
    try:
        assert ray.get(pending, timeout=20) == "done"
    except outcomes as error:
        assert "Holder" in str(error), "only because it read before there was something to read"


def test_a_summary_names_objects_sizes_and_holders() -> None:
    holder = Holder.remote()
    reference = ray.put(numpy.ones(MIB))
    ray.get(holder.hold.remote([reference]))
    # The daemon hears of the worker's hold on a stream of its own.
    wait_until(lambda: "worker" in line_of(reference.hex()))
    line = line_of(reference.hex())
    assert "8.389 MB" in line and "in memory" in line and line.count("driver") == 2
    text = memory_summary(units="MB")
    assert "object store:" in text and "objects known" in text
    assert reference.hex() not in memory_summary(stats_only=True)
    # What earlier tests held may go between the two answers.
    wait_until(lambda: f"... and {len(_core.holdings()[0])} more" in memory_summary(num_entries=0))
    with pytest.raises(ValueError, match="units"):
        memory_summary(units="stones")


def test_names() -> None:
    import ray.internal

    assert ray.internal.free is free
    ray._private.internal_api.global_gc()


def test_garbage_of_other_processes_is_collected() -> None:
    from ray._private.internal_api import global_gc

    @ray.remote
    class Hoarder:
        def hoard(self, box):
            import gc

            gc.disable()
            cycle = [box]
            cycle.append(cycle)

    hoarder = Hoarder.remote()
    reference = ray.put(numpy.ones(MIB))
    name = reference.hex()
    ray.get(hoarder.hoard.remote([reference]))
    wait_until(lambda: "worker" in line_of(name))
    del reference
    gc.collect()
    wait_until(lambda: "driver x" not in line_of(name))
    assert "worker" in line_of(name)
    global_gc()
    wait_until(lambda: not line_of(name))
