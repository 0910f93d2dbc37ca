"""Lost results of methods and lost items of generators: made again where that can be, and the reason where it cannot."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
import ray
from oxiray import _core
from oxiray.exceptions import ErrorType, ObjectReconstructionFailedError, RayActorError, RayError
from spilled import SIZE, STORE, lose
from watching import wait_until


def note(journal: Path) -> int:
    """Notes one more run; the how manieth it is."""
    with journal.open("a") as file:
        file.write("x")
    return runs(journal)


def runs(journal: Path) -> int:
    return journal.stat().st_size


def array(value: int) -> numpy.ndarray:
    return numpy.full(SIZE, value, dtype=numpy.uint8)


@ray.remote
class Maker:
    def make(self, journal: Path, value: int) -> numpy.ndarray:
        note(journal)
        return array(value)

    def several(self, journal: Path, count: int) -> Iterator[numpy.ndarray]:
        note(journal)
        for value in range(count):
            yield array(value)


@ray.remote
def several(journal: Path, count: int, later: int | None = None) -> Iterator[numpy.ndarray]:
    """Yields `count` arrays, and `later` where it is run again."""
    again = note(journal) > 1
    for value in range(later if again and later is not None else count):
        yield array(value)


@ray.remote
def stubborn(journal: Path) -> numpy.ndarray:
    """Does not let itself be cancelled."""
    try:
        note(journal)
        while True:
            time.sleep(0.01)
    except KeyboardInterrupt:
        return array(9)


def reason_of(reference: ray.ObjectRef) -> ErrorType | None:
    with pytest.raises(ObjectReconstructionFailedError) as raised:
        ray.get(reference, timeout=30)
    return raised.value.reason


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.mark.parametrize("retries", [1, -1])
def test_a_method_runs_again_where_its_calls_may(cluster, journal: Path, retries: int) -> None:
    cluster(object_store_memory=STORE)
    maker = Maker.options(max_restarts=1, max_task_retries=retries).remote()
    made = maker.make.remote(journal, 7)
    ray.wait([made])
    lose(made)
    assert (ray.get(made, timeout=30) == 7).all()
    assert runs(journal) == 2
    gc.collect()
    if retries == 1:
        lose(made)
        assert reason_of(made) == ErrorType.OBJECT_UNRECONSTRUCTABLE_MAX_ATTEMPTS_EXCEEDED
    del made, maker
    gc.collect()
    wait_until(lambda: _core.figures()["task_specs"] == 0)


def test_a_method_does_not_where_they_may_not(cluster, journal: Path) -> None:
    cluster(object_store_memory=STORE)
    maker = Maker.remote()
    made = maker.make.remote(journal, 7)
    ray.wait([made])
    lose(made)
    assert reason_of(made) == ErrorType.OBJECT_UNRECONSTRUCTABLE_RETRIES_DISABLED
    assert runs(journal) == 1


def test_a_method_of_an_actor_that_is_gone(cluster, journal: Path) -> None:
    cluster(object_store_memory=STORE)
    maker = Maker.options(max_task_retries=-1).remote()
    made = maker.make.remote(journal, 7)
    ray.wait([made])
    ray.kill(maker)
    with pytest.raises(RayActorError):
        ray.get(maker.make.remote(journal, 7), timeout=30)
    lose(made)
    with pytest.raises(RayActorError):
        ray.get(made, timeout=30)
    assert runs(journal) == 1


def test_a_generator_yields_lost_items_anew(cluster, journal: Path) -> None:
    cluster(object_store_memory=STORE)
    items = list(several.options(max_retries=-1).remote(journal, 3))
    ray.wait(items, num_returns=3)
    lose(*items)
    for place in (1, 0, 2):
        assert (ray.get(items[place], timeout=30) == place).all()
    assert 2 <= runs(journal) <= 4
    del items
    gc.collect()
    wait_until(lambda: _core.figures()["task_specs"] == 0 and _core.figures()["objects"] == 0)


def test_an_item_that_another_process_reads_is_yielded_anew(cluster, journal: Path) -> None:
    cluster(object_store_memory=STORE)

    @ray.remote
    def last(box: list) -> int:
        return int(ray.get(box[0])[-1])

    items = list(several.remote(journal, 2))
    ray.wait(items, num_returns=2)
    lose(*items)
    assert ray.get(last.remote([items[1]]), timeout=40) == 1


def test_a_generator_of_an_actor_yields_lost_items_anew(cluster, journal: Path) -> None:
    cluster(object_store_memory=STORE)
    maker = Maker.options(max_task_retries=-1).remote()
    items = list(maker.several.remote(journal, 2))
    ray.wait(items, num_returns=2)
    lose(*items)
    assert [int(ray.get(item, timeout=30)[0]) for item in items] == [0, 1]
    assert runs(journal) >= 2


def test_a_generator_that_may_not_run_again(cluster, journal: Path) -> None:
    cluster(object_store_memory=STORE)
    items = list(several.options(max_retries=0).remote(journal, 2))
    ray.wait(items, num_returns=2)
    lose(*items)
    assert reason_of(items[0]) == ErrorType.OBJECT_UNRECONSTRUCTABLE_RETRIES_DISABLED
    assert runs(journal) == 1


def test_a_generator_that_yields_less_the_second_time_says_so(cluster, journal: Path) -> None:
    cluster(object_store_memory=STORE)
    items = list(several.options(max_retries=-1).remote(journal, 3, later=1))
    ray.wait(items, num_returns=3)
    lose(*items)
    with pytest.raises(RayError, match="yielded only 1 items"):
        ray.get(items[2], timeout=30)
    assert ray.get(items[0], timeout=30)[0] == 0


def test_what_was_cancelled_is_not_run_again(cluster, journal: Path) -> None:
    cluster(object_store_memory=STORE)
    made = stubborn.remote(journal)
    wait_until(lambda: journal.exists() and runs(journal) == 1)
    ray.cancel(made)
    assert (ray.get(made, timeout=30) == 9).all()
    lose(made)
    assert reason_of(made) == ErrorType.OBJECT_UNRECONSTRUCTABLE_TASK_CANCELLED
    assert runs(journal) == 1


def test_reconstruction_can_be_asked_for(cluster, journal: Path) -> None:
    switches = {"lineage_pinning_enabled": False}
    cluster(object_store_memory=STORE, _system_config=switches, _enable_object_reconstruction=True)
    items = list(several.remote(journal, 1))
    ray.wait(items)
    lose(*items)
    assert ray.get(items[0], timeout=30)[0] == 0
