"""`ray.util.queue`: a queue shared by processes."""

from __future__ import annotations

import asyncio
import queue as standard
from collections.abc import Callable
from typing import Any

import pytest
import ray
from ray.util.queue import Empty, Full, Queue


@pytest.fixture(autouse=True)
def started(cluster: Callable[..., Any]) -> None:
    cluster()


def test_items_come_out_in_the_order_they_went_in() -> None:
    queue = Queue()
    for item in range(5):
        queue.put(item)
    assert (len(queue), queue.size(), queue.qsize()) == (5, 5, 5)
    assert not queue.empty() and not queue.full()
    assert [queue.get() for _ in range(5)] == list(range(5))
    assert queue.empty()


@pytest.mark.parametrize("get", [lambda q: q.get(timeout=0.01), lambda q: q.get(block=False), lambda q: q.get_nowait()])
def test_nothing_to_take(get: Callable[[Queue], Any]) -> None:
    with pytest.raises(Empty) as caught:
        get(Queue())
    assert type(caught.value) is Empty and isinstance(caught.value, standard.Empty) and "queue" in str(caught.value)


@pytest.mark.parametrize(
    "put", [lambda q: q.put(2, timeout=0.01), lambda q: q.put(2, block=False), lambda q: q.put_nowait(2)]
)
def test_no_room(put: Callable[[Queue], None]) -> None:
    queue = Queue(maxsize=1)
    queue.put(1)
    assert queue.full()
    with pytest.raises(Full) as caught:
        put(queue)
    assert type(caught.value) is Full and isinstance(caught.value, standard.Full) and "1" in str(caught.value)
    assert queue.get() == 1


def test_batches_go_whole_or_not_at_all() -> None:
    queue = Queue(maxsize=3)
    queue.put_nowait_batch(iter([1, 2]))
    with pytest.raises(Full):
        queue.put_nowait_batch([3, 4])
    with pytest.raises(Empty):
        queue.get_nowait_batch(3)
    assert queue.get_nowait_batch(2) == [1, 2]
    assert queue.get_nowait_batch(0) == []


def test_what_is_no_batch_and_no_timeout_is_refused() -> None:
    queue = Queue()
    with pytest.raises(TypeError):
        queue.put_nowait_batch(1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        queue.get_nowait_batch("1")  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        queue.get_nowait_batch(-1)
    with pytest.raises(ValueError, match="timeout"):
        queue.get(timeout=-1)
    with pytest.raises(ValueError, match="timeout"):
        queue.put(1, timeout=-1)


def test_a_put_waits_for_room_and_a_get_for_an_item() -> None:
    queue = Queue(maxsize=1)

    @ray.remote(num_cpus=0)
    def produce(queue: Queue, count: int) -> None:
        for item in range(count):
            queue.put(item)

    done = produce.remote(queue, 20)
    assert [queue.get(timeout=60) for _ in range(20)] == list(range(20))
    ray.get(done)


def test_async_code_waits_without_blocking() -> None:
    async def talk() -> Any:
        queue = Queue(maxsize=1)
        waiting = asyncio.ensure_future(queue.get_async(timeout=60))
        await queue.put_async("item")
        got = await waiting
        with pytest.raises(Empty):
            await queue.get_async(block=False)
        await queue.put_async(1, block=False)
        with pytest.raises(Full):
            await queue.put_async(2, block=False)
        with pytest.raises(Full):
            await queue.put_async(2, timeout=0.01)
        with pytest.raises(ValueError):
            await queue.put_async(2, timeout=-1)
        return got

    assert asyncio.run(talk()) == "item"


@pytest.mark.parametrize("force", [False, True])
def test_shutdown_ends_the_actor(force: bool) -> None:
    queue = Queue(actor_options={"name": "shared", "num_cpus": 1})
    other = ray.get_actor("shared")
    queue.put(1)
    queue.shutdown(force=force)
    queue.shutdown()
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(other.qsize.remote())
    with pytest.raises(RuntimeError, match="shut down"):
        queue.put(1)
