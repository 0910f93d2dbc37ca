"""Objects: put, references inside values, large arrays, a full store."""

from __future__ import annotations

import gc

import numpy
import pytest
import ray
from oxiray import _core
from watching import wait_until

MIB = 1 << 20


@ray.remote
def identity(value):
    return value


@ray.remote
def total(array):
    return float(array.sum())


def test_put_keeps_a_copy(cluster) -> None:
    cluster()
    value = [1, 2]
    reference = ray.put(value)
    value.append(3)
    assert ray.get(reference) == [1, 2]
    assert ray.get(identity.remote(reference)) == [1, 2]
    with pytest.raises(TypeError, match="ObjectRef"):
        ray.put(reference)


def test_references_are_values(cluster) -> None:
    cluster()
    first, second = ray.put(1), ray.put(1)
    assert first == first and first != second and len({first, second, first}) == 2
    assert len(first.binary()) == 28 and first.hex() == first.binary().hex()
    assert repr(first) == f"ObjectRef({first.hex()})"
    assert first.task_id().hex() in first.hex()
    assert first.job_id().hex() == ray.get_runtime_context().get_job_id()


def test_nested_references_stay_references(cluster) -> None:
    cluster()

    @ray.remote
    def look(box):
        assert isinstance(box[0], ray.ObjectRef)
        return ray.get(box[0])

    @ray.remote
    def make():
        return [ray.put("inner"), identity.remote("made")]

    assert ray.get(look.remote([ray.put("hidden")])) == "hidden"
    assert ray.get(look.remote([identity.remote("pending")])) == "pending"
    assert ray.get(ray.get(make.remote())) == ["inner", "made"]


def test_a_nested_reference_outlives_the_one_who_gave_it(cluster) -> None:
    cluster()

    @ray.remote
    class Keeper:
        def keep(self, box):
            self.box = box

        def open(self):
            return ray.get(self.box[0])

    keeper = Keeper.remote()
    ray.get(keeper.keep.remote([ray.put("kept")]))
    gc.collect()
    assert ray.get([identity.remote(i) for i in range(50)]) == list(range(50))
    assert ray.get(keeper.open.remote()) == "kept"


def test_a_value_outlives_the_worker_that_made_it(cluster) -> None:
    cluster()

    @ray.remote(max_calls=1)
    def make():
        return [ray.put(numpy.ones(MIB, dtype=numpy.uint8)), ray.put("small")]

    large, small = ray.get(make.remote())
    assert ray.get(small) == "small"
    assert ray.get(large).sum() == MIB


def test_large_arrays_are_views_and_read_only(cluster) -> None:
    cluster()
    array = numpy.arange(MIB, dtype=numpy.float64)
    reference = ray.put(array)
    seen = ray.get(reference)
    assert numpy.array_equal(seen, array) and not seen.flags.writeable
    assert seen.ctypes.data % 64 == 0 and not seen.flags.owndata
    with pytest.raises(ValueError):
        seen[0] = 1
    assert ray.get(reference).ctypes.data == seen.ctypes.data
    assert ray.get(total.remote(reference)) == array.sum()
    assert ray.get(total.remote(array)) == array.sum()
    assert numpy.array_equal(ray.get(identity.remote(array)), array)


def test_a_view_keeps_its_memory_when_the_reference_is_gone(cluster) -> None:
    cluster(object_store_memory=100 * MIB)
    seen = ray.get(ray.put(numpy.full(20 * MIB, 7, dtype=numpy.uint8)))
    gc.collect()
    for value in range(20):
        ray.put(numpy.full(20 * MIB, value, dtype=numpy.uint8))
    assert (seen == 7).all()


def test_memory_is_used_again(cluster) -> None:
    cluster(object_store_memory=100 * MIB)
    for _ in range(30):
        reference = ray.put(numpy.zeros(30 * MIB, dtype=numpy.uint8))
        assert ray.get(reference).nbytes == 30 * MIB
        del reference


def test_what_does_not_fit_in_memory_is_spilled_and_read_back(cluster) -> None:
    cluster(object_store_memory=80 * MIB)
    references = [ray.put(numpy.full(15 * MIB, i, dtype=numpy.uint8)) for i in range(10)]
    for i, reference in enumerate(references):
        assert (ray.get(reference) == i).all()


def test_references_are_counted_back_to_zero(cluster) -> None:
    cluster()
    gc.collect()
    before = _core.objects_known()

    def program() -> None:
        refs = [identity.remote(i) for i in range(100)]
        nested = ray.put([ray.put(i) for i in range(10)])
        boxes = ray.get([identity.remote([ref]) for ref in refs])
        assert ray.get([box[0] for box in boxes]) == list(range(100))
        assert ray.get(ray.get(nested)) == list(range(10))

    program()
    gc.collect()
    wait_until(lambda: _core.objects_known() == before)


def test_many_small_puts(cluster) -> None:
    cluster()
    references = [ray.put(i) for i in range(5000)]
    assert ray.get(references) == list(range(5000))


def test_a_reference_that_comes_back_to_its_owner_still_has_its_value(cluster) -> None:
    cluster()

    @ray.remote
    class Keeper:
        def keep(self, box):
            self.box = box

        def give(self):
            return self.box

        def make(self):
            return [ray.put("of the actor")]

        def read_own(self, box):
            return ray.get(box[0], timeout=20)

    keeper = Keeper.remote()
    ray.get(keeper.keep.remote([ray.put("of the driver"), identity.remote("of a task")]))
    gc.collect()
    assert ray.get(ray.get(keeper.give.remote()), timeout=20) == ["of the driver", "of a task"]
    assert ray.get(identity.remote(ray.get(keeper.give.remote())[0]), timeout=20) == "of the driver"
    made = ray.get(keeper.make.remote())
    assert ray.get(keeper.read_own.remote(made), timeout=20) == "of the actor"


def test_references_and_handles_of_an_ended_connection_say_so(cluster) -> None:
    cluster()

    @ray.remote
    class Actor:
        def ping(self):
            return 1

    stale, handle = ray.put(1), Actor.remote()
    ray.shutdown()
    cluster()
    with pytest.raises(ValueError, match="owner is unknown"):
        ray.get(stale)
    with pytest.raises(ValueError, match="owner is unknown"):
        ray.wait([stale])
    with pytest.raises(ValueError, match="owner is unknown"):
        identity.remote(stale)
    with pytest.raises(ValueError, match="owner is unknown"):
        identity.remote([stale])
    with pytest.raises(ray.exceptions.ActorHandleNotFoundError):
        ray.kill(handle)


def test_a_put_value_with_references_inside_is_an_argument(cluster) -> None:
    cluster()

    @ray.remote
    def look(box):
        return ray.get(box[0], timeout=20)

    @ray.remote
    class Keeper:
        def __init__(self, box):
            self.box = box

        def open(self):
            return ray.get(self.box[0], timeout=20)

    assert ray.get(look.remote(ray.put([ray.put("inner")])), timeout=30) == "inner"
    assert ray.get(Keeper.remote(ray.put([ray.put("inner")])).open.remote(), timeout=30) == "inner"


def test_what_a_value_contains_is_kept_for_those_who_read_it(cluster) -> None:
    cluster()

    @ray.remote
    class Keeper:
        def peek(self, box):
            ray.get(box[0])

        def keep(self, box):
            self.box = box

        def open(self):
            return ray.get(self.box[0], timeout=20)

    keeper, inner = Keeper.remote(), ray.put("inner")
    outer = ray.put([inner])
    ray.get(keeper.peek.remote([outer]))
    ray.get(keeper.keep.remote([inner]))
    del inner, outer
    gc.collect()
    assert ray.get([identity.remote(i) for i in range(20)]) == list(range(20))
    assert ray.get(keeper.open.remote(), timeout=30) == "inner"


def stored_objects() -> int:
    
    return _core.cluster()["store"]["objects"]


def test_nothing_stays_in_the_store(cluster) -> None:
    cluster()

    @ray.remote
    class Large:
        def __init__(self, array):
            self.size = array.nbytes

        def get(self):
            return self.size

    @ray.remote(num_returns=2)
    def half():
        import threading

        return numpy.zeros(MIB), threading.Lock()

    for _ in range(3):
        actor = Large.remote(numpy.zeros(MIB))
        assert ray.get(actor.get.remote()) == 8 * MIB
        ray.kill(actor)
        del actor
        with pytest.raises(TypeError):
            ray.get(half.remote())
    gc.collect()
    wait_until(lambda: stored_objects() == 0)


def test_a_forked_child_numbers_its_own_objects(cluster) -> None:
    import os

    cluster()
    before = ray.put(numpy.zeros(MIB))
    pid = os.fork()
    if pid == 0:
        ray.init(num_cpus=1, address="local")
        mine = ray.put(1)
        os._exit(0 if mine.task_id() != before.task_id() and ray.get(mine) == 1 and not ray.shutdown() else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert ray.get(ray.put(numpy.ones(MIB))).sum() == MIB
