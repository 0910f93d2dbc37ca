"""Utilities: pools, queues, metrics and what else `ray.util` has."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import ray
from ray.util import ActorPool
from ray.util.multiprocessing import Pool
from ray.util.queue import Empty, Full, Queue

pytestmark = pytest.mark.usefixtures("session")


@ray.remote(num_cpus=0)
class Doubling:
    def double(self, x: int) -> int:
        return 2 * x

    def slowly(self, seconds: float) -> float:
        time.sleep(seconds)
        return seconds


def pool_of(size: int) -> ActorPool:
    return ActorPool([Doubling.remote() for _ in range(size)])


def test_an_actor_pool_maps_in_order() -> None:
    assert list(pool_of(2).map(lambda actor, value: actor.double.remote(value), range(6))) == [0, 2, 4, 6, 8, 10]


def test_an_actor_pool_maps_in_any_order() -> None:
    assert sorted(pool_of(2).map_unordered(lambda actor, value: actor.double.remote(value), range(6))) == [0, 2, 4, 6, 8, 10]


def test_an_actor_pool_gives_what_was_submitted() -> None:
    pool = pool_of(1)
    for value in (1, 2):
        pool.submit(lambda actor, value: actor.double.remote(value), value)
    assert pool.has_next()
    assert [pool.get_next(), pool.get_next()] == [2, 4]
    assert not pool.has_next()


def test_an_actor_pool_without_results_raises() -> None:
    with pytest.raises(StopIteration):
        pool_of(1).get_next()


def test_an_actor_pool_times_out() -> None:
    pool = pool_of(1)
    pool.submit(lambda actor, value: actor.slowly.remote(value), 5.0)
    with pytest.raises(TimeoutError):
        pool.get_next(timeout=0.05)


def test_an_actor_pool_tells_who_is_free() -> None:
    pool = pool_of(1)
    assert pool.has_free()
    actor = pool.pop_idle()
    assert actor is not None and not pool.has_free()
    pool.push(actor)
    assert pool.has_free()


def test_a_queue_is_first_in_first_out() -> None:
    queue = Queue()
    for value in range(3):
        queue.put(value)
    assert (queue.size(), queue.qsize(), len(queue)) == (3, 3, 3)
    assert [queue.get() for _ in range(3)] == [0, 1, 2]
    queue.shutdown()


def test_an_empty_queue_raises() -> None:
    queue = Queue()
    with pytest.raises(Empty):
        queue.get_nowait()
    with pytest.raises(Empty):
        queue.get(timeout=0.05)
    queue.shutdown()


def test_a_full_queue_raises() -> None:
    queue = Queue(maxsize=1)
    queue.put(1)
    assert queue.full()
    with pytest.raises(Full):
        queue.put_nowait(2)
    with pytest.raises(Full):
        queue.put(2, timeout=0.05)
    queue.shutdown()


def test_a_queue_takes_batches() -> None:
    queue = Queue(maxsize=3)
    queue.put_nowait_batch([1, 2])
    with pytest.raises(Full):
        queue.put_nowait_batch([3, 4])
    assert queue.get_nowait_batch(2) == [1, 2]
    with pytest.raises(Empty):
        queue.get_nowait_batch(1)
    queue.shutdown()


def test_a_queue_is_used_asynchronously() -> None:
    import asyncio

    async def main() -> int:
        queue = Queue()
        await queue.put_async(5)
        value = await queue.get_async()
        queue.shutdown()
        return value

    assert asyncio.run(main()) == 5


@pytest.fixture(scope="module")
def pool() -> Any:
    if not ray.is_initialized():
        ray.init(num_cpus=4, num_gpus=2, resources={"part": 8}, include_dashboard=False)
    made = Pool(2)
    yield made
    made.terminate()
    made.join()


def square(x: int) -> int:
    return x * x


def fail(x: int) -> int:
    raise ValueError(x)


def test_a_pool_maps(pool: Pool) -> None:
    assert pool.map(square, range(5)) == [0, 1, 4, 9, 16]


def test_a_pool_maps_tuples(pool: Pool) -> None:
    assert pool.starmap(pow, [(2, 3), (3, 2)]) == [8, 9]


def test_a_pool_maps_one_by_one(pool: Pool) -> None:
    assert list(pool.imap(square, range(4))) == [0, 1, 4, 9]
    assert sorted(pool.imap_unordered(square, range(4))) == [0, 1, 4, 9]


def test_a_pool_applies(pool: Pool) -> None:
    assert pool.apply(square, (3,)) == 9
    assert pool.apply_async(square, (4,)).get(timeout=30) == 16


def test_a_pool_raises_what_its_function_does(pool: Pool) -> None:
    with pytest.raises(ValueError):
        pool.apply(fail, (1,))


def test_a_pool_calls_back(pool: Pool, eventually: Callable[..., Any]) -> None:
    results: list = []
    pool.map_async(square, range(3), callback=results.append)
    eventually(lambda: results)
    assert sorted(results[0]) == [0, 1, 4]


def test_an_async_result_says_whether_it_succeeded(pool: Pool) -> None:
    good, bad = pool.apply_async(square, (2,)), pool.apply_async(fail, (2,))
    good.wait(30)
    bad.wait(30)
    assert good.ready() and good.successful() and not bad.successful()


def test_metrics_count_and_measure() -> None:
    from ray.util.metrics import Counter, Gauge, Histogram

    counter = Counter("compat_counter", description="Counts.", tag_keys=("kind",))
    counter.inc(2, tags={"kind": "a"})
    gauge = Gauge("compat_gauge", description="Measures.")
    gauge.set(5)
    histogram = Histogram("compat_histogram", description="Sorts.", boundaries=[1, 10])
    histogram.observe(3)
    assert counter.info["name"] == "compat_counter" and counter.info["tag_keys"] == ("kind",)


def test_metrics_refuse_what_makes_no_sense() -> None:
    from ray.util.metrics import Counter, Histogram

    with pytest.raises(ValueError):
        Counter("compat_negative", description="").inc(-1)
    with pytest.raises(ValueError):
        Counter("compat_tags", description="", tag_keys=("kind",)).inc(1, tags={"other": "a"})
    with pytest.raises(ValueError):
        Histogram("compat_no_boundaries", description="", boundaries=[])
    with pytest.raises(ValueError):
        Counter("", description="")


def test_default_tags_fill_what_is_left_out() -> None:
    from ray.util.metrics import Counter

    counter = Counter("compat_default", description="", tag_keys=("kind",))
    counter.set_default_tags({"kind": "a"})
    counter.inc()
    assert counter.info["default_tags"] == {"kind": "a"}


def test_the_address_of_the_node_is_told() -> None:
    assert ray.util.get_node_ip_address() == ray.nodes()[0]["NodeManagerAddress"]


def test_annotations_leave_things_as_they_are() -> None:
    from ray.util.annotations import DeveloperAPI, PublicAPI

    @PublicAPI(stability="beta")
    def one() -> int:
        return 1

    @DeveloperAPI
    class Kept:
        value = 2

    assert (one(), Kept.value) == (1, 2)


def test_the_store_of_keys_keeps_values() -> None:
    from ray.experimental import internal_kv

    internal_kv._internal_kv_put(b"compat-key", b"value")
    assert internal_kv._internal_kv_get(b"compat-key") == b"value"
    assert internal_kv._internal_kv_exists(b"compat-key")
    internal_kv._internal_kv_del(b"compat-key")
    assert internal_kv._internal_kv_get(b"compat-key") is None


def test_graphs_of_calls_are_executed() -> None:
    from ray.dag import InputNode

    @ray.remote
    def add(a: int, b: int) -> int:
        return a + b

    with InputNode() as given:
        graph = add.bind(add.bind(given, 1), 10)
    assert ray.get(graph.execute(5)) == 16


def test_actors_are_made_by_graphs() -> None:
    graph = Doubling.bind().double.bind(4)
    assert ray.get(graph.execute()) == 8


def test_names_of_accelerators_are_constants() -> None:
    from ray.util import accelerators

    assert accelerators.NVIDIA_TESLA_V100 == "V100" and accelerators.NVIDIA_A100 == "A100"


def test_cloudpickle_is_there() -> None:
    import pickle

    factor = 3
    assert pickle.loads(ray.cloudpickle.dumps(lambda x: factor * x))(2) == 6
