"""When a program has let go of everything, nothing of it is left: in its process, in the daemon, in memory, on disk."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from pathlib import Path

import documented
import numpy
import pytest
import ray
import settled
from oxiray.exceptions import RayError, TaskCancelledError

from spilled import MIB
from watching import wait_until

SIZE = 2 * MIB
PROGRAMS = documented.all_programs()


@ray.remote
def identity(value):
    return value


@ray.remote
def large(number):
    return numpy.full(SIZE, number % 256, dtype=numpy.uint8)


@ray.remote
def total(*arrays):
    return sum(int(array[0]) for array in arrays)


@ray.remote
def boxed(count):
    return [ray.put(numpy.ones(SIZE, dtype=numpy.uint8)) for _ in range(count)] + [identity.remote(1)]


@ray.remote(max_retries=0)
def fail(*_):
    raise ValueError("as it should")


@ray.remote(max_retries=1)
def crash(*_):
    os._exit(1)


@ray.remote
class Keeper:
    def __init__(self, *box):
        self.box = box

    def keep(self, box):
        self.box = box

    def give(self):
        return self.box

    def read(self):
        return [ray.get(reference) for reference in self.box]


def chains() -> None:
    ends = []
    for start in range(10):
        value = large.remote(start)
        for _ in range(5):
            value = identity.remote(value)
        ends.append(value)
    assert ray.get(total.remote(*ends)) == sum(range(10))


def dropped_before_they_are_done() -> None:
    for number in range(50):
        large.remote(number)
        total.remote(large.remote(number), ray.put(numpy.zeros(SIZE, dtype=numpy.uint8)))


def nested() -> None:
    outer = [boxed.remote(2) for _ in range(4)]
    for box in ray.get(outer):
        assert ray.get(box[-1]) == 1 and ray.get(box[0]).sum() == SIZE
    again = ray.put([outer, [ray.put([large.remote(1)])]])
    assert ray.get(ray.get(ray.get(again)[1][0])[0])[0] == 1


def kept_by_actors_that_end() -> None:
    killed, dropped, crashed = (Keeper.remote(large.remote(1)) for _ in range(3))
    for keeper in (killed, dropped, crashed):
        ray.get(keeper.keep.remote([ray.put(numpy.ones(SIZE)), large.remote(3)]))
    assert ray.get(ray.get(dropped.give.remote())[1])[0] == 3
    ray.get(killed.read.remote())
    ray.kill(killed)
    with pytest.raises(RayError):
        ray.get(crashed.__ray_call__.remote(lambda _: os._exit(1)))


def failures() -> None:
    for task in (fail, crash):
        references = [task.remote(large.remote(1), [ray.put(numpy.ones(SIZE))]) for _ in range(3)]
        for reference in references:
            with pytest.raises(RayError):
                ray.get(reference)
        with pytest.raises(RayError):
            ray.get(identity.remote(references[0]))


def views() -> None:
    arrays = ray.get([large.remote(number) for number in range(12)])
    assert [int(array[0]) for array in arrays] == list(range(12))
    part = arrays[3][100:200]
    del arrays
    gc.collect()
    assert part.sum() == 300


def more_than_fits() -> None:
    references = [ray.put(numpy.full(8 * MIB, number, dtype=numpy.uint8)) for number in range(16)]
    assert [int(array[0]) for array in ray.get(references)] == list(range(16))


def cancelled() -> None:
    @ray.remote
    def wait(gate, _):
        return ray.get(gate.read.remote())

    gate = Keeper.remote()
    blocked = [wait.remote(gate, large.remote(number)) for number in range(6)]
    for reference in blocked:
        ray.cancel(reference)
    for reference in blocked:
        try:
            ray.get(reference, timeout=20)
        except RayError:
            pass


def interrupted() -> None:
    @ray.remote
    def compute(begun, _):
        ray.get(begun.keep.remote(True))
        while True:
            pass

    for _ in range(3):
        begun = Keeper.remote()
        running = compute.remote(begun, large.remote(1))
        wait_until(lambda begun=begun: ray.get(begun.give.remote()) is True)
        ray.cancel(running)
        with pytest.raises(TaskCancelledError):
            ray.get(running, timeout=20)


def waits_and_futures() -> None:
    references = [identity.remote(number) for number in range(200)]
    futures = [reference.future() for reference in references[:50]]
    while references:
        _, references = ray.wait(references, num_returns=min(20, len(references)))
    assert sorted(future.result(timeout=20) for future in futures) == list(range(50))
    with pytest.raises(ray.exceptions.GetTimeoutError):
        ray.get(Keeper.remote(large.remote(1)).__ray_call__.remote(lambda _: __import__("time").sleep(5)), timeout=0.05)


def freed() -> None:
    from ray.internal import free

    references = [large.remote(number) for number in range(5)] + [ray.put(numpy.ones(SIZE))]
    keeper = Keeper.remote()
    ray.get(keeper.keep.remote(references))
    ray.wait(references, num_returns=len(references))
    free(references)


STRESSES = [
    chains,
    dropped_before_they_are_done,
    nested,
    kept_by_actors_that_end,
    failures,
    views,
    more_than_fits,
    cancelled,
    interrupted,
    waits_and_futures,
    freed,
]


@pytest.mark.parametrize("stress", STRESSES, ids=lambda stress: stress.__name__)
def test_nothing_is_left_of(small_store, stress) -> None:
    assert not settled.settle(), "before"
    stress()
    assert not settled.settle()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_documented_program_leaves_nothing(program: documented.Program) -> None:
    folder = Path(tempfile.mkdtemp(prefix="oxi-"))
    try:
        environment = documented.clean_environment(folder, program.environment)
        environment["PYTHONPATH"] = os.pathsep.join([environment["PYTHONPATH"], str(Path(settled.__file__).parent)])
        outcome = documented.execute([sys.executable, settled.__file__, program.path], environment)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert outcome.status == 0, "\n".join(outcome.errors[-10:])


def test_what_a_program_leaves_is_seen(small_store) -> None:
    kept = ray.put(numpy.ones(SIZE))
    left = settled.left_behind()
    assert left["references"] == left["stored objects"] == 1 and left["bytes of the store"] >= SIZE
    del kept
    assert not settled.settle()
