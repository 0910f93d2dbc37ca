"""Patterns of the user guide: whole small programs."""

from __future__ import annotations

import asyncio
import collections
import os
import threading
import time
from typing import Any

import numpy as np
import pytest
import ray
from ray.util.queue import Queue

pytestmark = pytest.mark.usefixtures("session")


@ray.remote
def double(value: int) -> int:
    return 2 * value


@ray.remote(num_cpus=0)
class Event:
    """An event that tasks wait for."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.waiting = 0

    async def wait(self) -> None:
        self.waiting += 1
        await self.event.wait()

    async def set(self) -> None:
        self.event.set()

    async def count(self) -> int:
        return self.waiting


def test_numbers_are_sorted_by_a_tree_of_tasks() -> None:
    @ray.remote
    def sort(numbers: list[int]) -> list[int]:
        if len(numbers) < 8:
            return sorted(numbers)
        pivot = numbers[0]
        smaller = sort.remote([one for one in numbers[1:] if one < pivot])
        larger = sort.remote([one for one in numbers[1:] if one >= pivot])
        return [*ray.get(smaller), pivot, *ray.get(larger)]

    numbers = [(37 * index) % 41 for index in range(41)]
    assert ray.get(sort.remote(numbers)) == sorted(numbers)


def test_results_are_added_up_by_a_tree_of_tasks() -> None:
    @ray.remote
    def add(left: int, right: int) -> int:
        return left + right

    values = [double.remote(index) for index in range(9)]
    while len(values) > 1:
        values = [*values[2:], add.remote(values[0], values[1])]
    assert ray.get(values[0]) == 72


def test_words_are_counted_by_maps_and_a_reduction() -> None:
    @ray.remote
    def count(text: str) -> collections.Counter:
        return collections.Counter(text.split())

    @ray.remote
    def merge(*counts: collections.Counter) -> dict[str, int]:
        return dict(sum(counts, collections.Counter()))

    texts = ["a b a", "b c", "c c a"]
    assert ray.get(merge.remote(*[count.remote(text) for text in texts])) == {"a": 3, "b": 2, "c": 3}


def test_maps_deal_their_results_out_to_several_reductions() -> None:
    @ray.remote(num_returns=3)
    def split(numbers: list[int]) -> list[list[int]]:
        return [[one for one in numbers if one % 3 == rest] for rest in range(3)]

    @ray.remote
    def merge(*parts: list[int]) -> list[int]:
        return sorted(sum(parts, []))

    parts = [split.remote(list(range(begin, begin + 5))) for begin in (0, 5, 10)]
    merged = ray.get([merge.remote(*column) for column in zip(*parts, strict=True)])
    assert merged == [[0, 3, 6, 9, 12], [1, 4, 7, 10, 13], [2, 5, 8, 11, 14]]


def test_wait_limits_how_many_tasks_are_pending() -> None:
    pending: list[Any] = []
    values, most = [], 0
    for index in range(20):
        if len(pending) >= 4:
            ready, pending = ray.wait(pending, num_returns=1)
            values += ray.get(ready)
        pending.append(double.remote(index))
        most = max(most, len(pending))
    values += ray.get(pending)
    assert (sorted(values), most) == ([2 * index for index in range(20)], 4)


def test_results_are_taken_as_they_come() -> None:
    event = Event.remote()

    @ray.remote
    def late(event: Any) -> str:
        ray.get(event.wait.remote())
        return "late"

    pending = [late.remote(event), double.remote(1), double.remote(2)]
    order = []
    while pending:
        (ready,), pending = ray.wait(pending)
        order.append(ray.get(ready))
        if len(order) == 2:
            event.set.remote()
    assert (sorted(order[:2]), order[2]) == ([2, 4], "late")


def test_an_actor_synchronizes_tasks() -> None:
    event = Event.remote()

    @ray.remote
    def go(event: Any, index: int) -> int:
        ray.get(event.wait.remote())
        return index

    waiting = [go.remote(event, index) for index in range(3)]
    while ray.get(event.count.remote()) < 3:
        assert not ray.wait(waiting, timeout=0.05)[0]
    event.set.remote()
    assert ray.get(waiting) == [0, 1, 2]


def test_a_supervisor_has_actors_of_its_own() -> None:
    @ray.remote(num_cpus=0)
    class Worker:
        def work(self, item: int) -> int:
            return item + 1

    @ray.remote(num_cpus=0)
    class Supervisor:
        def __init__(self, count: int) -> None:
            self.workers = [Worker.remote() for _ in range(count)]

        def work(self, items: list[int]) -> list[int]:
            pairs = zip(self.workers, items, strict=True)
            return ray.get([worker.work.remote(item) for worker, item in pairs])

    assert ray.get(Supervisor.remote(3).work.remote([1, 2, 3])) == [2, 3, 4]


def test_a_supervisor_hands_out_its_actors() -> None:
    @ray.remote(num_cpus=0)
    class Worker:
        def pid(self) -> int:
            return os.getpid()

    @ray.remote(num_cpus=0)
    class Supervisor:
        def __init__(self) -> None:
            self.worker = Worker.remote()

        def get(self) -> Any:
            return self.worker

    supervisor = Supervisor.remote()
    worker = ray.get(supervisor.get.remote())
    assert ray.get(worker.pid.remote()) == ray.get(ray.get(supervisor.get.remote()).pid.remote())


def test_an_actor_fetches_ahead_of_its_work() -> None:
    @ray.remote(num_cpus=0)
    class Items:
        def __init__(self) -> None:
            self.items = iter(range(5))

        def next(self) -> int | None:
            return next(self.items, None)

    @ray.remote
    class Worker:
        def __init__(self, items: Any) -> None:
            self.items = items

        def run(self) -> list[int]:
            done, ahead = [], self.items.next.remote()
            while (item := ray.get(ahead)) is not None:
                ahead = self.items.next.remote()
                done.append(item * item)
            return done

    assert ray.get(Worker.remote(Items.remote()).run.remote()) == [0, 1, 4, 9, 16]


def test_a_server_of_parameters_is_updated_by_workers() -> None:
    @ray.remote(num_cpus=0)
    class Server:
        def __init__(self, size: int) -> None:
            self.values = np.zeros(size)

        def push(self, gradient: np.ndarray) -> None:
            self.values = self.values + gradient

        def pull(self) -> np.ndarray:
            return self.values

    @ray.remote
    def work(server: Any, rounds: int) -> None:
        for _ in range(rounds):
            values = ray.get(server.pull.remote())
            ray.get(server.push.remote(np.ones_like(values)))

    server = Server.remote(10)
    ray.get([work.remote(server, 5) for _ in range(3)])
    assert ray.get(server.pull.remote()).tolist() == [15.0] * 10


def test_an_actor_is_the_shared_state_of_tasks() -> None:
    @ray.remote(num_cpus=0)
    class Progress:
        def __init__(self) -> None:
            self.done: dict[int, int] = {}

        def report(self, task: int, count: int) -> None:
            self.done[task] = count

        def share(self, total: int) -> float:
            return sum(self.done.values()) / total

    @ray.remote
    def sample(progress: Any, task: int) -> None:
        for count in range(1, 11):
            progress.report.remote(task, count)
        ray.get(progress.share.remote(1))

    progress = Progress.remote()
    ray.get([sample.remote(progress, task) for task in range(4)])
    assert ray.get(progress.share.remote(40)) == 1.0


def test_a_global_of_the_driver_is_not_changed_by_tasks() -> None:
    state = {"value": 1}

    @ray.remote
    def change() -> int:
        state["value"] += 10
        return state["value"]

    assert ray.get(change.remote()) == 11
    assert state["value"] == 1


def test_a_large_argument_is_put_once() -> None:
    large = np.arange(200_000)
    reference = ray.put(large)

    @ray.remote
    def total(array: np.ndarray, index: int) -> int:
        return int(array[index])

    assert ray.get([total.remote(reference, index) for index in range(4)]) == [0, 1, 2, 3]


def test_a_captured_reference_is_got_within_the_task() -> None:
    reference = ray.put(np.ones(1000))

    @ray.remote
    def total() -> float:
        return float(ray.get(reference).sum())

    assert ray.get(total.remote()) == 1000.0


def test_resources_limit_how_many_tasks_run() -> None:
    @ray.remote(num_cpus=0)
    class Gauge:
        def __init__(self) -> None:
            self.now = self.most = 0

        def enter(self) -> None:
            self.now += 1
            self.most = max(self.now, self.most)

        def leave(self) -> int:
            self.now -= 1
            return self.most

    @ray.remote(num_cpus=0, resources={"part": 4})
    def work(gauge: Any) -> int:
        ray.get(gauge.enter.remote())
        return ray.get(gauge.leave.remote())

    gauge = Gauge.remote()
    assert max(ray.get([work.remote(gauge) for _ in range(8)])) <= 2


def test_tasks_are_batched_by_hand() -> None:
    @ray.remote
    def batch(numbers: list[int]) -> list[int]:
        return [number + 1 for number in numbers]

    numbers = list(range(100))
    batches = [numbers[begin : begin + 25] for begin in range(0, 100, 25)]
    assert sum(ray.get([batch.remote(one) for one in batches]), []) == list(range(1, 101))


def test_objects_are_fetched_a_few_at_a_time() -> None:
    references = [double.remote(index) for index in range(12)]
    got = []
    for begin in range(0, 12, 5):
        got += ray.get(references[begin : begin + 5])
    assert got == [2 * index for index in range(12)]


def test_a_queue_connects_producers_and_consumers() -> None:
    queue = Queue(maxsize=2)

    @ray.remote
    def produce(queue: Queue, items: int) -> None:
        for item in range(items):
            queue.put(item)
        queue.put(None)

    @ray.remote
    def consume(queue: Queue) -> list[int]:
        return list(iter(queue.get, None))

    produced, consumed = produce.remote(queue, 10), consume.remote(queue)
    assert ray.get(consumed) == list(range(10))
    ray.get(produced)
    queue.shutdown()


def test_a_program_with_threads_calls_from_each() -> None:
    results: dict[int, int] = {}

    def work(index: int) -> None:
        results[index] = ray.get(double.remote(index))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {index: 2 * index for index in range(8)}


def test_threads_of_a_task_call_too() -> None:
    @ray.remote
    def threaded() -> list[int]:
        found: list[int] = []
        threads = [
            threading.Thread(target=lambda index=index: found.append(ray.get(double.remote(index)))) for index in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sorted(found)

    assert ray.get(threaded.remote()) == [0, 2, 4]


def test_a_thread_of_an_actor_calls_while_a_method_runs() -> None:
    @ray.remote(num_cpus=0)
    class Background:
        def __init__(self) -> None:
            self.values: list[int] = []
            self.thread = threading.Thread(target=self.run, daemon=True)
            self.thread.start()

        def run(self) -> None:
            for index in range(3):
                self.values.append(ray.get(double.remote(index)))

        def wait(self) -> list[int]:
            self.thread.join(timeout=60)
            return self.values

    assert ray.get(Background.remote().wait.remote()) == [0, 2, 4]


def test_an_executor_of_the_driver_runs_remote_calls() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as executor:
        assert list(executor.map(lambda index: ray.get(double.remote(index)), range(10))) == [2 * index for index in range(10)]


def test_asyncio_run_in_the_driver_gathers_tasks_and_coroutines() -> None:
    async def local() -> str:
        await asyncio.sleep(0)
        return "local"

    async def main() -> list[Any]:
        return await asyncio.gather(double.remote(1), local(), double.remote(2))

    assert asyncio.run(main()) == [2, "local", 4]


def test_asyncio_timeouts_leave_the_task_running() -> None:
    event = Event.remote()

    @ray.remote
    def slow(event: Any) -> str:
        ray.get(event.wait.remote())
        return "done"

    reference = slow.remote(event)

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(reference.as_future()), timeout=0.1)

    asyncio.run(main())
    event.set.remote()
    assert ray.get(reference) == "done"


def test_pi_is_estimated_with_progress() -> None:
    @ray.remote(num_cpus=0)
    class Progress:
        def __init__(self, total: int) -> None:
            self.total, self.done = total, {}

        def report(self, task: int, done: int) -> None:
            self.done[task] = done

        def get(self) -> float:
            return sum(self.done.values()) / self.total

    @ray.remote
    def inside(samples: int, task: int, progress: Any) -> int:
        generator = np.random.default_rng(task)
        points = generator.random((samples, 2))
        progress.report.remote(task, samples)
        return int(((points**2).sum(axis=1) <= 1).sum())

    progress = Progress.remote(4000)
    hits = ray.get([inside.remote(1000, task, progress) for task in range(4)])
    deadline = time.monotonic() + 30
    while ray.get(progress.get.remote()) < 1 and time.monotonic() < deadline:
        pass
    assert 2.9 < 4 * sum(hits) / 4000 < 3.4
    assert ray.get(progress.get.remote()) == 1.0


def test_a_generator_keeps_one_item_in_memory() -> None:
    @ray.remote(num_returns=4)
    def split() -> Any:
        for index in range(4):
            yield np.full(50_000, index)

    assert [int(array[0]) for array in ray.get(split.remote())] == [0, 1, 2, 3]


def test_a_graph_of_tasks_is_written_by_references() -> None:
    @ray.remote
    def add(left: int, right: int) -> int:
        return left + right

    one, two = double.remote(1), double.remote(2)
    three = add.remote(one, two)
    assert ray.get(add.remote(three, add.remote(one, three))) == 14


def test_a_game_of_actors_that_call_each_other() -> None:
    @ray.remote(num_cpus=0)
    class Player:
        def __init__(self, name: str) -> None:
            self.name, self.other = name, None

        def meet(self, other: Any) -> None:
            self.other = other

        async def hit(self, left: int) -> list[str]:
            if left == 0:
                return [self.name]
            return [self.name, *await self.other.hit.remote(left - 1)]

    ping, pong = Player.remote("ping"), Player.remote("pong")
    ray.get([ping.meet.remote(pong), pong.meet.remote(ping)])
    assert ray.get(ping.hit.remote(3)) == ["ping", "pong", "ping", "pong"]
