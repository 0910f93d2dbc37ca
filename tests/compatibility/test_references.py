"""References: futures, callbacks, identifiers."""

import asyncio
import concurrent.futures
import queue
import threading
import time

import pytest
import ray


pytestmark = pytest.mark.usefixtures("session")


@ray.remote
def one():
    return 1


@ray.remote
def slow(value):
    time.sleep(0.3)
    return value


@ray.remote
def failing():
    raise ValueError("expected")


def test_as_future_works_without_a_running_loop():
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        refs = [slow.remote(n) for n in range(3)]
        assert loop.run_until_complete(asyncio.gather(*[ref.as_future() for ref in refs])) == [0, 1, 2]
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_as_future_mixes_with_coroutines():
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)

    async def double(n):
        await asyncio.sleep(0)
        return 2 * n

    try:
        assert loop.run_until_complete(asyncio.gather(slow.remote(1).as_future(), double(4))) == [1, 8]
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_a_reference_is_awaited():
    async def main():
        return await one.remote()

    assert asyncio.run(main()) == 1


def test_asyncio_wait_takes_futures_of_references():
    async def main():
        done, pending = await asyncio.wait([one.remote().as_future(), slow.remote(2).as_future()])
        assert not pending
        return sorted(task.result() for task in done)

    assert asyncio.run(main()) == [1, 2]


def test_asyncio_wait_for_times_out():
    @ray.remote
    def never():
        time.sleep(60)

    async def main():
        ref = never.remote()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ref, 0.2)
        ray.cancel(ref, force=True)

    asyncio.run(main())


def test_an_awaited_reference_raises_both_classes():
    async def main():
        with pytest.raises(ValueError) as caught:
            await failing.remote()
        assert isinstance(caught.value, ray.exceptions.RayTaskError)

    asyncio.run(main())


def test_future_is_a_concurrent_future():
    future = slow.remote(4).future()
    assert isinstance(future, concurrent.futures.Future)
    assert future.result(timeout=30) == 4


def test_futures_of_references_are_waited_for():
    done, pending = concurrent.futures.wait([slow.remote(n).future() for n in range(2)], timeout=30)
    assert not pending
    assert sorted(future.result() for future in done) == [0, 1]


def test_future_has_the_exception():
    with pytest.raises(ValueError, match="expected"):
        failing.remote().future().result(timeout=30)


def test_on_completed_tells_the_value():
    told = queue.Queue()
    ref = slow.remote(5)
    ref._on_completed(told.put)
    assert told.get(timeout=30) == 5


def test_on_completed_of_a_value_that_is_there():
    told = queue.Queue()
    ref = ray.put("here")
    ref._on_completed(told.put)
    assert told.get(timeout=30) == "here"


def test_on_completed_tells_the_exception():
    told = queue.Queue()
    failing.remote()._on_completed(told.put)
    error = told.get(timeout=30)
    assert isinstance(error, ray.exceptions.RayTaskError)
    assert isinstance(error.cause, ValueError)


def test_on_completed_may_be_said_several_times_and_submit_tasks():
    told = queue.Queue()
    ref = slow.remote(5)
    ref._on_completed(lambda value: told.put(("first", value)))
    ref._on_completed(lambda value: told.put(("second", one.remote())))
    answers = dict(told.get(timeout=30) for _ in range(2))
    assert answers["first"] == 5
    assert ray.get(answers["second"]) == 1


def test_on_completed_runs_in_another_thread():
    told = queue.Queue()
    slow.remote(5)._on_completed(lambda _: told.put(threading.current_thread()))
    assert told.get(timeout=30) is not threading.current_thread()


def test_identifiers_are_bytes_and_digits():
    ref = ray.put(1)
    assert len(ref.binary()) == 28
    assert ref.hex() == ref.binary().hex()
    assert ray.ObjectRef(ref.binary()) == ref
    assert repr(ref) == f"ObjectRef({ref.hex()})"
    assert not ref.is_nil()
    assert ray.ObjectRef.nil().is_nil()
    assert ref.size() == 28


def test_a_reference_knows_its_task_and_job():
    ref = one.remote()
    assert isinstance(ref.task_id(), ray.TaskID)
    assert isinstance(ref.job_id(), ray.JobID)
    assert ref.job_id().hex() == ray.get_runtime_context().get_job_id()


def test_references_are_keys():
    refs = [ray.put(n) for n in range(3)]
    names = {ref: n for n, ref in enumerate(refs)}
    assert [names[ref] for ref in refs] == [0, 1, 2]


def test_type_arguments_of_references():
    assert ray.ObjectRef[int] is not None

    def f(x: ray.ObjectRef[int]) -> "ray.ObjectRef[str]": ...

    assert f.__annotations__["x"] is not None
