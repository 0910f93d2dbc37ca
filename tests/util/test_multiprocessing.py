"""`ray.util.multiprocessing`: Python's pool of processes, over actors."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray
from ray.util.multiprocessing import Pool, TimeoutError
from ray.util.multiprocessing.pool import PoolTaskError
from ray.util.queue import Queue


@pytest.fixture
def pool(cluster: Callable[..., Any]) -> Iterator[Pool]:
    cluster()
    with Pool(2) as pool:
        yield pool


def double(value: int) -> int:
    if value < 0:
        raise ValueError("negative")
    return 2 * value


def add(first: int, second: int = 10) -> int:
    return first + second


def take(queue: Queue) -> Any:
    return queue.get()


def process(_: Any = None) -> int:
    return os.getpid()


def die(_: Any = None) -> None:
    os._exit(1)


def test_apply(pool: Pool) -> None:
    assert pool.apply(add, (1,)) == 11
    assert pool.apply(add, (1,), {"second": 2}) == 3
    assert pool.apply(process) != os.getpid()
    with pytest.raises(ValueError, match="negative"):
        pool.apply(double, (-1,))


@pytest.mark.parametrize("chunksize", [None, 1, 3, 100])
def test_maps(pool: Pool, chunksize: int | None) -> None:
    doubled = [2 * value for value in range(25)]
    assert pool.map(double, range(25), chunksize) == doubled
    assert pool.map_async(double, iter(range(25)), chunksize).get() == doubled
    assert pool.starmap(add, [(1, 2), (3,)], chunksize) == [3, 13]
    assert pool.starmap_async(add, iter([(1, 2), (3,)])).get() == [3, 13]
    assert list(pool.imap(double, range(25), chunksize)) == doubled
    assert list(pool.imap(double, iter(range(25)), chunksize)) == doubled
    assert sorted(pool.imap_unordered(double, iter(range(25)), chunksize)) == doubled


def test_of_nothing(pool: Pool) -> None:
    assert pool.map(double, []) == list(pool.imap(double, [])) == list(pool.imap_unordered(double, [])) == []
    assert pool.map_async(double, []).ready()


def test_both_processes_work(pool: Pool) -> None:
    assert len(set(pool.map(process, range(8), chunksize=1))) == 2


def test_an_error_of_one_item(pool: Pool) -> None:
    with pytest.raises(ValueError, match="negative"):
        pool.map(double, [1, -1, 2])
    for results in (pool.imap(double, [1, -1, 2], chunksize=3), pool.imap_unordered(double, [1, -1, 2], chunksize=3)):
        assert next(results) == 2
        error = next(results)
        assert isinstance(error, PoolTaskError) and "negative" in str(error.underlying)
        assert list(results) == [4]


def test_a_result_that_is_late(pool: Pool) -> None:
    queue = Queue()
    result = pool.apply_async(take, (queue,))
    for lazily in (pool.imap(take, [queue]), pool.imap_unordered(take, [queue])):
        with pytest.raises(TimeoutError):
            lazily.next(timeout=0)
    with pytest.raises(multiprocessing.TimeoutError):
        result.get(timeout=0)
    result.wait(timeout=0)
    assert not result.ready()
    with pytest.raises(ValueError, match="not ready"):
        result.successful()
    queue.put_nowait_batch([1, 2, 3])
    assert result.get(timeout=60) in (1, 2, 3)
    assert result.ready() and result.successful()


def test_success_is_told(pool: Pool) -> None:
    result = pool.map_async(double, [1, -1])
    result.wait()
    assert result.ready() and not result.successful()


def test_callbacks(pool: Pool) -> None:
    def refuse(value: Any) -> None:
        told.append(f"not to be told {value}")

    told: list[Any] = []
    pool.apply_async(double, (1,), callback=told.append).wait()
    pool.map_async(double, [1, 2], callback=told.append, error_callback=refuse).wait()
    pool.starmap_async(add, [(1, 2)], callback=told.append).wait()
    assert told == [2, [2, 4], [3]]
    failed = pool.map_async(double, [-1, -2], callback=refuse, error_callback=told.append)
    with pytest.raises(ValueError, match="negative"):
        failed.get()
    assert isinstance(told[-1], ValueError) and len(told) == 4


def test_lazy_items_are_read_as_workers_become_free(pool: Pool) -> None:
    read = []

    def items() -> Iterator[int]:
        for item in range(100):
            read.append(item)
            yield item

    results = pool.imap(double, items())
    assert len(read) == 2
    assert next(results) == 0
    assert 3 <= len(read) <= 4


def test_the_initializer_runs_in_each_process(cluster: Callable[..., Any]) -> None:
    cluster()

    def prepare(*words: str) -> None:
        os.environ["PREPARED"] = "-".join(words)

    with Pool(2, prepare, ["a", "b"]) as pool:
        assert pool.map(lambda _: os.environ["PREPARED"], range(4), chunksize=1) == ["a-b"] * 4

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ray.exceptions.ActorDiedError, match="no"):
        Pool(1, fail)


def test_processes_are_replaced(cluster: Callable[..., Any]) -> None:
    cluster()
    with Pool(1, maxtasksperchild=2) as pool:
        ids = [pool.apply(process) for _ in range(6)]
        assert ids[0] == ids[1] and ids[2] == ids[3] and len(set(ids)) == 3
        pool.close()
        pool.join()


def test_a_process_that_dies_fails_its_calls(pool: Pool) -> None:
    with pytest.raises(ray.exceptions.ActorDiedError):
        pool.apply(die)


def test_close_lets_work_finish(cluster: Callable[..., Any]) -> None:
    cluster()
    pool = Pool(2)
    queue = Queue()
    eager = pool.map_async(take, [queue] * 3, chunksize=1)
    lazy = pool.imap_unordered(take, iter([queue] * 7))
    with pytest.raises(ValueError, match="running"):
        pool.join()
    pool.close()
    pool.close()
    for refused in (
        lambda: pool.map(double, [1]), lambda: pool.apply(double, (1,)), lambda: pool.imap(double, [1]), pool.__enter__
    ):
        with pytest.raises(ValueError, match="not running"):
            refused()
    queue.put_nowait_batch(list(range(10)))
    pool.join()
    assert eager.ready()
    assert sorted([*eager.get(), *lazy]) == list(range(10))


def test_terminate_ends_work(cluster: Callable[..., Any]) -> None:
    cluster()
    pool = Pool(1)
    stuck = pool.apply_async(take, (Queue(),))
    pool.terminate()
    pool.join()
    with pytest.raises(ray.exceptions.RayActorError):
        stuck.get(timeout=60)


def test_leaving_the_block_terminates(cluster: Callable[..., Any]) -> None:
    cluster()
    with Pool(1) as pool:
        stuck = pool.apply_async(take, (Queue(),))
    with pytest.raises(ray.exceptions.RayActorError):
        stuck.get(timeout=60)
    with pytest.raises(ValueError):
        pool.apply(double, (1,))


@pytest.mark.parametrize("options", [{"processes": 0}, {"processes": 3}, {"maxtasksperchild": 0}])
def test_what_makes_no_sense_is_refused(cluster: Callable[..., Any], options: dict[str, int]) -> None:
    cluster()
    with pytest.raises(ValueError):
        Pool(**options)  # type: ignore[arg-type]


def test_chunks_hold_something(pool: Pool) -> None:
    with pytest.raises(ValueError, match="chunksize"):
        pool.map(double, [1], chunksize=0)


def test_options_of_the_actors(cluster: Callable[..., Any]) -> None:
    cluster(resources={"thing": 2})
    with Pool(2, ray_remote_args={"resources": {"thing": 1}}):
        assert "thing" not in ray.available_resources()


def test_it_starts_what_was_not_started() -> None:
    ray.shutdown()
    with Pool(3) as pool:
        assert ray.cluster_resources()["CPU"] == 3
        assert pool.map(double, [1, 2]) == [2, 4]
    with Pool() as pool:
        assert len(set(pool.map(process, range(6), chunksize=1))) == 3
    ray.shutdown()


def test_threads_share_a_pool(pool: Pool) -> None:
    collected: list[Any] = []
    threads = [threading.Thread(target=lambda: collected.append(pool.map(double, range(10)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert collected == [[2 * value for value in range(10)]] * 4
