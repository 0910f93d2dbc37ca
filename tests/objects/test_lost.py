"""Values whose stored bytes are lost: made again where that can be, and the reason where it cannot."""

from __future__ import annotations

import gc
import os

import numpy
import pytest
import ray
from oxiray import _core
from oxiray.exceptions import ErrorType, ObjectLostError, ObjectReconstructionFailedError

from spilled import SIZE, STORE, lose, spill
from watching import alive, wait_until


@pytest.fixture
def counted(tmp_path):
    """A function that tells how often tasks named it, across processes."""

    def count(name: str) -> int:
        path = tmp_path / name
        return len(path.read_text()) if path.exists() else 0

    count.folder = str(tmp_path)
    return count


@ray.remote
def make(folder, name, value, ballast=b""):
    with open(f"{folder}/{name}", "a") as file:
        file.write("x")
    return numpy.full(SIZE, value, dtype=numpy.uint8)


@ray.remote
def add_one(folder, name, array):
    with open(f"{folder}/{name}", "a") as file:
        file.write("x")
    return array + 1


@ray.remote
def first(array):
    return int(array[0])


@ray.remote
def first_of(box):
    return int(ray.get(box[0])[0])


def reason_of(reference) -> ErrorType:
    with pytest.raises(ObjectReconstructionFailedError) as raised:
        ray.get(reference, timeout=30)
    assert f"[{ErrorType(raised.value.reason).name.removeprefix('OBJECT_UNRECONSTRUCTABLE_')}]" in str(raised.value)
    assert raised.value.reason_message
    return raised.value.reason


def test_a_lost_result_is_made_again(cluster, counted) -> None:
    cluster(object_store_memory=STORE)
    made = make.remote(counted.folder, "made", 7)
    ray.wait([made])
    lose(made)
    assert (ray.get(made, timeout=30) == 7).all()
    assert counted("made") == 2
    gc.collect()
    assert (ray.get(made, timeout=30) == 7).all() and counted("made") == 2


def test_arguments_that_are_gone_are_made_again_too(cluster, counted) -> None:
    cluster(object_store_memory=STORE)
    value = ray.put(3)
    start = make.remote(counted.folder, "start", value)
    middle = add_one.remote(counted.folder, "middle", start)
    end = add_one.remote(counted.folder, "end", middle)
    ray.wait([end])
    del start, middle, value
    lose(end)
    assert (ray.get(end, timeout=30) == 5).all()
    assert (counted("start"), counted("middle"), counted("end")) == (2, 2, 2)


def test_a_lost_argument_is_made_again_for_the_task_that_takes_it(cluster, counted) -> None:
    cluster(object_store_memory=STORE)
    made = make.remote(counted.folder, "made", 7)
    ray.wait([made])
    lose(made)
    assert ray.get(first.remote(made), timeout=30) == 7
    assert counted("made") == 2


def test_a_lost_value_is_made_again_for_another_process(cluster, counted) -> None:
    cluster(object_store_memory=STORE)
    made = make.remote(counted.folder, "made", 7)
    ray.wait([made])
    lose(made)
    assert ray.get([first_of.remote([made]), first_of.remote([made])], timeout=30) == [7, 7]
    assert counted("made") == 2


def test_an_owner_that_kept_no_reference_makes_it_again_for_those_who_did(cluster, counted) -> None:
    cluster(object_store_memory=STORE)

    @ray.remote
    class Keeper:
        def keep(self, box):
            self.box = box

        def read(self):
            return int(ray.get(self.box[0])[0])

        def drop(self):
            self.box = None

    keeper = Keeper.remote()
    made = make.remote(counted.folder, "made", 7)
    ray.get(keeper.keep.remote([made]))
    ray.wait([made])
    lose(made)
    del made
    gc.collect()
    assert ray.get(keeper.read.remote(), timeout=30) == 7
    assert counted("made") == 2
    assert _core.figures()["task_specs"] == 1
    ray.get(keeper.drop.remote())
    wait_until(lambda: _core.figures()["task_specs"] == 0)


def test_only_what_is_lost_of_several_results_is_written_again(cluster, counted) -> None:
    cluster(object_store_memory=STORE)

    @ray.remote(num_returns=2)
    def both(folder):
        with open(f"{folder}/both", "a") as file:
            file.write("x")
        return numpy.full(SIZE, 1, dtype=numpy.uint8), numpy.full(SIZE, 2, dtype=numpy.uint8)

    one, two = both.remote(counted.folder)
    seen = ray.get(two)
    lose(one)
    assert (ray.get(one, timeout=30) == 1).all() and (ray.get(two, timeout=30) == 2).all() and (seen == 2).all()
    assert counted("both") == 2


def test_attempts_are_counted(cluster, counted) -> None:
    cluster(object_store_memory=STORE)
    made = make.options(max_retries=1).remote(counted.folder, "made", 7)
    ray.wait([made])
    lose(made)
    assert (ray.get(made, timeout=30) == 7).all()
    lose(made)
    assert reason_of(made) == ErrorType.OBJECT_UNRECONSTRUCTABLE_MAX_ATTEMPTS_EXCEEDED
    assert counted("made") == 2


def test_what_may_not_run_twice_is_not_made_again(cluster, counted) -> None:
    cluster(object_store_memory=STORE)

    @ray.remote
    class Maker:
        def make(self):
            return numpy.zeros(SIZE, dtype=numpy.uint8)

    made = make.options(max_retries=0).remote(counted.folder, "made", 7)
    maker = Maker.remote()
    by_actor = maker.make.remote()
    ray.wait([made, by_actor], num_returns=2)
    lose(made, by_actor)
    assert reason_of(made) == ErrorType.OBJECT_UNRECONSTRUCTABLE_RETRIES_DISABLED
    assert reason_of(by_actor) == ErrorType.OBJECT_UNRECONSTRUCTABLE_RETRIES_DISABLED
    assert counted("made") == 1


def test_what_was_put_is_not_made_again(cluster, counted) -> None:
    cluster(object_store_memory=STORE)
    kept = ray.put(numpy.zeros(SIZE, dtype=numpy.uint8))
    lose(kept)
    assert reason_of(kept) == ErrorType.OBJECT_UNRECONSTRUCTABLE_PUT
    dependent = first.remote(kept)
    assert reason_of(dependent) == ErrorType.OBJECT_UNRECONSTRUCTABLE_PUT


def test_a_result_of_an_argument_that_is_gone_says_why(cluster, counted) -> None:
    cluster(object_store_memory=STORE)
    kept = ray.put(numpy.zeros(SIZE, dtype=numpy.uint8))
    made = add_one.remote(counted.folder, "made", kept)
    ray.wait([made])
    del kept
    lose(made)
    assert reason_of(made) == ErrorType.OBJECT_UNRECONSTRUCTABLE_PUT


def test_records_give_way_to_their_limit(cluster, counted) -> None:
    cluster(object_store_memory=STORE, _system_config={"max_lineage_bytes": 100_000})
    made = make.remote(counted.folder, "made", 7)
    ray.wait([made])
    later = [make.remote(counted.folder, "later", number, b"x" * 60_000) for number in range(2)]
    ray.wait(later, num_returns=2)
    assert _core.figures()["task_spec_bytes"] <= 100_000
    lose(made)
    assert reason_of(made) == ErrorType.OBJECT_UNRECONSTRUCTABLE_LINEAGE_EVICTED


def test_nothing_is_made_again_where_that_is_switched_off(cluster, counted) -> None:
    cluster(object_store_memory=STORE, _system_config={"lineage_pinning_enabled": False})
    made = make.remote(counted.folder, "made", 7)
    ray.wait([made])
    lose(made)
    assert reason_of(made) == ErrorType.OBJECT_UNRECONSTRUCTABLE_LINEAGE_DISABLED
    assert counted("made") == 1


def test_a_value_lost_with_its_owner_says_so(cluster) -> None:
    cluster(object_store_memory=STORE)

    @ray.remote(max_calls=1)
    def box():
        return [os.getpid(), ray.put(numpy.zeros(SIZE, dtype=numpy.uint8))]

    owner, inner = ray.get(box.remote())
    ray.wait([inner])
    assert ray.get(inner).nbytes == SIZE
    gc.collect()
    wait_until(lambda: not alive(owner))
    lose(inner)
    with pytest.raises(ray.exceptions.OwnerDiedError):
        ray.get(inner, timeout=30)


def test_a_task_that_answers_otherwise_the_second_time(cluster, counted) -> None:
    cluster(object_store_memory=STORE)

    @ray.remote
    def once(folder):
        import os

        with open(f"{folder}/once", "a") as file:
            file.write("x")
        if os.path.getsize(f"{folder}/once") > 1:
            raise ValueError("not again")
        return numpy.zeros(SIZE, dtype=numpy.uint8)

    @ray.remote
    def shrinking(folder):
        import os

        with open(f"{folder}/shrinking", "a") as file:
            file.write("x")
        return "small" if os.path.getsize(f"{folder}/shrinking") > 1 else numpy.zeros(SIZE, dtype=numpy.uint8)

    raising, small = once.remote(counted.folder), shrinking.remote(counted.folder)
    ray.wait([raising, small], num_returns=2)
    lose(raising, small)
    with pytest.raises(ValueError, match="not again"):
        ray.get(raising, timeout=30)
    with pytest.raises(ValueError, match="not again"):
        ray.get(raising, timeout=30)
    assert ray.get(small, timeout=30) == "small"


def test_what_is_only_on_disk_is_not_lost(cluster, counted) -> None:
    cluster(object_store_memory=STORE)
    made = make.remote(counted.folder, "made", 7)
    ray.wait([made])
    spill(made)
    assert (ray.get(made, timeout=30) == 7).all() and counted("made") == 1
