"""Programs with utilities: pools, queues, processes, joblib, metrics, and what explains failures."""

from __future__ import annotations

import asyncio
import builtins
import io
import os
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import pytest
import ray
from ray.util import ActorPool, inspect_serializability
from ray.util.multiprocessing import Pool, TimeoutError
from ray.util.queue import Empty, Full, Queue

pytestmark = pytest.mark.usefixtures("session")


@ray.remote(num_cpus=0)
class Worker:
    def double(self, value: int) -> int:
        return 2 * value

    def slow(self, value: float) -> float:
        time.sleep(value)
        return value

    def fail(self, value: int) -> int:
        if value == 1:
            raise ValueError("one")
        return value


def double(actor: Any, value: int) -> Any:
    return actor.double.remote(value)


def test_a_pool_of_actors_maps_more_than_it_has_actors() -> None:
    pool = ActorPool([Worker.remote() for _ in range(2)])
    assert list(pool.map(double, range(10))) == [2 * value for value in range(10)]


def test_a_pool_gives_results_as_they_come() -> None:
    workers = [Worker.remote() for _ in range(2)]
    ray.get([worker.double.remote(1) for worker in workers])
    pool = ActorPool(workers)
    for value in (5.0, 0.0):
        pool.submit(lambda actor, value: actor.slow.remote(value), value)
    assert [pool.get_next_unordered(), pool.get_next_unordered()] == [0.0, 5.0]


def test_a_pool_that_has_nothing_stops() -> None:
    pool = ActorPool([Worker.remote()])
    assert pool.has_next() is False
    with pytest.raises(StopIteration):
        pool.get_next()
    with pytest.raises(StopIteration):
        pool.get_next_unordered()


def test_a_pool_times_out_and_goes_on() -> None:
    pool = ActorPool([Worker.remote()])
    pool.submit(lambda actor, value: actor.slow.remote(value), 5)
    with pytest.raises(builtins.TimeoutError):
        pool.get_next(timeout=0.05)
    assert pool.get_next(timeout=60) == 5


def test_a_pool_raises_in_the_place_of_the_result() -> None:
    pool = ActorPool([Worker.remote()])
    results = pool.map(lambda actor, value: actor.fail.remote(value), range(3))
    assert next(results) == 0
    with pytest.raises(ValueError, match="one"):
        next(results)


def test_a_queue_is_passed_to_actors_and_tasks() -> None:
    queue = Queue()

    @ray.remote(num_cpus=0)
    class Producer:
        def produce(self, queue: Queue, count: int) -> None:
            for index in range(count):
                queue.put(index)

    ray.get(Producer.remote().produce.remote(queue, 3))
    assert [queue.get(), queue.get(), queue.get()] == [0, 1, 2]
    assert queue.empty()
    queue.shutdown()


def test_a_full_queue_holds_its_producer() -> None:
    queue = Queue(maxsize=1)
    queue.put(1)
    with pytest.raises(Full):
        queue.put(2, block=False)
    with pytest.raises(Full):
        queue.put(2, timeout=0.1)
    with pytest.raises(ValueError):
        queue.put(2, timeout=-1)
    assert queue.get() == 1
    with pytest.raises(Empty):
        queue.get(block=False)
    with pytest.raises(ValueError):
        queue.get(timeout=-1)
    queue.shutdown()


def test_the_actor_of_a_queue_has_options() -> None:
    queue = Queue(actor_options={"name": "named queue", "num_cpus": 0})
    queue.put("in it")
    assert ray.get_actor("named queue") is not None
    assert queue.get() == "in it"
    queue.shutdown()


def test_a_queue_is_used_in_asyncio() -> None:
    async def main() -> list[int]:
        queue = Queue(maxsize=2)
        await queue.put_async(1)
        await queue.put_async(2)
        with pytest.raises(Full):
            await queue.put_async(3, timeout=0.05)
        got = [await queue.get_async(), await queue.get_async()]
        with pytest.raises(Empty):
            await queue.get_async(block=False)
        queue.shutdown()
        return got

    assert asyncio.run(main()) == [1, 2]


def square(value: int) -> int:
    return value * value


def fail(value: int) -> int:
    raise ValueError(f"no {value}")


def add(left: int, right: int) -> int:
    return left + right


@pytest.fixture(scope="module")
def pool() -> Any:
    if not ray.is_initialized():
        ray.init(num_cpus=4, num_gpus=2, resources={"part": 8}, include_dashboard=False)
    made = Pool(2)
    yield made
    made.terminate()
    made.join()


def test_a_pool_maps_with_chunks(pool: Pool) -> None:
    assert pool.map(square, range(10), chunksize=3) == [value * value for value in range(10)]
    assert pool.map(square, []) == []


def test_a_pool_takes_generators(pool: Pool) -> None:
    assert pool.map(square, (value for value in range(4))) == [0, 1, 4, 9]
    assert list(pool.imap(square, iter([3, 4]), chunksize=1)) == [9, 16]


def test_a_pool_applies_with_names(pool: Pool) -> None:
    assert pool.apply(add, args=(1,), kwargs={"right": 2}) == 3
    assert pool.apply_async(add, args=(1, 5)).get() == 6


def test_a_pool_calls_back_with_the_error(pool: Pool, eventually: Callable[..., Any]) -> None:
    errors: list[Exception] = []
    result = pool.apply_async(fail, (5,), error_callback=errors.append)
    with pytest.raises(ValueError, match="no 5"):
        result.get(timeout=60)
    eventually(lambda: errors)
    assert "no 5" in str(errors[0])


def test_a_pool_result_times_out(pool: Pool) -> None:
    result = pool.apply_async(time.sleep, (6,))
    with pytest.raises(TimeoutError):
        result.get(timeout=0.05)
    assert not result.ready()
    with pytest.raises(ValueError):
        result.successful()
    result.wait(timeout=60)
    assert result.successful()


def test_starmap_takes_lists_and_asynchronous_calls(pool: Pool) -> None:
    assert pool.starmap(add, [[1, 2], (3, 4)]) == [3, 7]
    assert pool.starmap_async(add, [(1, 1)]).get(timeout=60) == [2]


def test_a_pool_runs_its_initializer_in_each_process() -> None:
    def initialize(value: int) -> None:
        import builtins

        builtins.value_of_the_pool = value

    def read(_: int) -> int:
        import builtins

        return builtins.value_of_the_pool

    with Pool(2, initializer=initialize, initargs=(7,)) as made:
        assert made.map(read, range(4)) == [7] * 4


def test_a_closed_pool_takes_no_more() -> None:
    made = Pool(1)
    assert made.apply(square, (2,)) == 4
    made.close()
    with pytest.raises(ValueError):
        made.apply(square, (2,))
    made.join()


def test_join_before_close_is_refused() -> None:
    made = Pool(1)
    with pytest.raises(ValueError):
        made.join()
    made.terminate()
    made.join()


@pytest.mark.parametrize("processes", [0, -1])
def test_a_pool_has_one_process_at_least(processes: int) -> None:
    with pytest.raises(ValueError):
        Pool(processes)


def test_a_pool_has_options_for_its_actors() -> None:
    with Pool(1, ray_remote_args={"num_cpus": 1, "resources": {"part": 1}}) as made:
        assert made.apply(lambda: ray.get_runtime_context().get_assigned_resources()["part"]) == 1.0


def test_a_pool_is_used_within_a_task() -> None:
    @ray.remote(num_cpus=0)
    def within() -> list[int]:
        with Pool(1) as made:
            return made.map(square, range(3))

    assert ray.get(within.remote()) == [0, 1, 4]


def test_what_is_serializable_is_said_to_be() -> None:
    with redirect_stdout(io.StringIO()):
        good, failures = inspect_serializability([1, 2], name="list")
    assert (good, failures) == (True, set())


def test_the_attribute_that_cannot_be_pickled_is_found() -> None:
    class Holder:
        def __init__(self) -> None:
            self.fine = 1
            self.lock = threading.Lock()

    told = io.StringIO()
    good, failures = inspect_serializability(Holder(), name="holder", print_file=told)
    assert good is False
    assert any(failure.path[-1] == "lock" for failure in failures)
    assert "lock" in told.getvalue()


def test_a_captured_lock_of_a_function_is_found() -> None:
    lock = threading.Lock()

    def function() -> Any:
        return lock

    good, failures = inspect_serializability(function, name="function", print_file=io.StringIO())
    assert good is False
    assert {failure.path[-1] for failure in failures} == {"lock"}


def test_metrics_are_set_in_actors() -> None:
    from ray.util.metrics import Counter, Gauge, Histogram

    @ray.remote(num_cpus=0)
    class Measured:
        def __init__(self) -> None:
            self.counter = Counter("of_mine_count", description="Counts.", tag_keys=("actor",))
            self.counter.set_default_tags({"actor": "one"})
            self.gauge = Gauge("of_mine_gauge", tag_keys=("actor",))
            self.histogram = Histogram("of_mine_time", boundaries=[0.1, 1, 10], tag_keys=("actor",))

        def measure(self) -> dict[str, Any]:
            self.counter.inc()
            self.counter.inc(2.0, tags={"actor": "two"})
            self.gauge.set(5, tags={"actor": "one"})
            self.histogram.observe(0.5, tags={"actor": "one"})
            return self.counter.info

    info = ray.get(Measured.remote().measure.remote())
    assert (info["name"], info["tag_keys"]) == ("of_mine_count", ("actor",))


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_metric_has_a_name(name: Any) -> None:
    from ray.util.metrics import Gauge

    with pytest.raises((ValueError, TypeError)):
        Gauge(name, description="")


def test_a_counter_only_grows() -> None:
    from ray.util.metrics import Counter

    counter = Counter("of_mine_grows")
    for wrong in (0, -1):
        with pytest.raises(ValueError):
            counter.inc(wrong)
    with pytest.raises(TypeError):
        Counter("of_mine_keys", tag_keys="text")


def test_a_tag_that_has_no_value_is_refused() -> None:
    from ray.util.metrics import Gauge

    gauge = Gauge("of_mine_tags", tag_keys=("one", "two"))
    with pytest.raises(ValueError):
        gauge.set(1, tags={"one": "1"})
    with pytest.raises(TypeError):
        gauge.set(1, tags={"one": 1, "two": "2"})


def test_logs_once_are_shown_once() -> None:
    from ray.util import log_once

    assert log_once("of mine") is True
    assert log_once("of mine") is False


def test_a_progress_bar_is_drawn_by_tasks() -> None:
    from ray.experimental import tqdm_ray

    @ray.remote
    def work() -> int:
        return sum(tqdm_ray.tqdm(range(5), desc="working"))

    assert ray.get(work.remote()) == 10


def test_an_actor_is_found_again_by_its_name_from_the_util_list() -> None:
    actor = Worker.options(name="listed worker").remote()
    ray.get(actor.double.remote(1))
    assert "listed worker" in ray.util.list_named_actors()
    (found,) = [one for one in ray.util.list_named_actors(all_namespaces=True) if one["name"] == "listed worker"]
    assert ray.get(ray.get_actor(found["name"], namespace=found["namespace"]).double.remote(2)) == 4


def test_calls_of_a_pool_go_to_its_processes_in_turn() -> None:
    with Pool(2) as pool:
        pids = [pool.apply_async(os.getpid).get() for _ in range(6)]
    assert len(set(pids)) == 2
    assert pids[:2] * 3 == pids
