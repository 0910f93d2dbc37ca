"""Objects: put, get, wait, references and what keeps a value."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import ray

pytestmark = pytest.mark.usefixtures("session")


@ray.remote
def slow(path: Any, value: Any = None) -> Any:
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return value


def test_put_and_get_give_an_equal_value() -> None:
    for value in (1, "text", None, [1, {"a": (2, 3)}], {1, 2}, b"bytes", 1.5, 2 + 3j):
        assert ray.get(ray.put(value)) == value


def test_a_list_of_references_gives_a_list_of_values() -> None:
    assert ray.get([ray.put(i) for i in range(5)]) == [0, 1, 2, 3, 4]
    assert ray.get([]) == []


def test_an_object_is_a_copy() -> None:
    value = [1]
    reference = ray.put(value)
    value.append(2)
    assert ray.get(reference) == [1]


def test_an_array_is_read_without_a_copy_and_cannot_be_written() -> None:
    array = ray.get(ray.put(np.arange(100_000)))
    assert array.sum() == 4999950000
    with pytest.raises(ValueError):
        array[0] = 1


def test_an_array_argument_cannot_be_written() -> None:
    @ray.remote
    def write(array: Any) -> None:
        array[0] = 1

    with pytest.raises(ValueError, match="read-only"):
        ray.get(write.remote(np.zeros(100_000)))


def test_a_reference_cannot_be_put() -> None:
    with pytest.raises(TypeError, match="ObjectRef"):
        ray.put(ray.put(1))


def test_get_takes_references_only() -> None:
    with pytest.raises((TypeError, ValueError)):
        ray.get(5)
    with pytest.raises((TypeError, ValueError)):
        ray.get([1, 2])


def test_get_with_a_timeout_raises(tmp_path: Any) -> None:
    reference = slow.remote(tmp_path / "go")
    with pytest.raises(ray.exceptions.GetTimeoutError):
        ray.get(reference, timeout=0.1)
    (tmp_path / "go").touch()
    assert ray.get(reference, timeout=30) is None


def test_a_timeout_is_a_timeout_error(tmp_path: Any) -> None:
    reference = slow.remote(tmp_path / "go")
    with pytest.raises(TimeoutError):
        ray.get(reference, timeout=0)
    (tmp_path / "go").touch()


def test_wait_returns_one_that_is_ready(tmp_path: Any) -> None:
    waiting, ready = slow.remote(tmp_path / "go"), ray.put(1)
    assert ray.wait([waiting, ready]) == ([ready], [waiting])
    (tmp_path / "go").touch()


def test_wait_returns_as_many_as_are_asked_for() -> None:
    references = [ray.put(i) for i in range(5)]
    ready, rest = ray.wait(references, num_returns=3)
    assert len(ready) == 3 and len(rest) == 2
    assert set(ready + rest) == set(references)


def test_wait_with_a_timeout_returns_what_is_ready(tmp_path: Any) -> None:
    waiting, ready = slow.remote(tmp_path / "go"), ray.put(1)
    assert ray.wait([waiting, ready], num_returns=2, timeout=0.2) == ([ready], [waiting])
    (tmp_path / "go").touch()


def test_wait_keeps_the_order_of_its_list() -> None:
    references = [ray.put(i) for i in range(10)]
    ready, _ = ray.wait(references, num_returns=10)
    assert ready == references


def test_wait_refuses_one_reference_twice() -> None:
    reference = ray.put(1)
    with pytest.raises(ValueError):
        ray.wait([reference, reference])


def test_wait_refuses_more_results_than_references() -> None:
    with pytest.raises(ValueError):
        ray.wait([ray.put(1)], num_returns=2)


def test_wait_refuses_a_single_reference() -> None:
    with pytest.raises(TypeError):
        ray.wait(ray.put(1))


def test_wait_counts_a_failed_task_as_ready() -> None:
    @ray.remote
    def fail() -> None:
        raise ValueError

    reference = fail.remote()
    assert ray.wait([reference], timeout=30) == ([reference], [])


def test_wait_of_nothing_is_nothing() -> None:
    assert ray.wait([], num_returns=1, timeout=0) == ([], [])


def test_references_are_equal_by_their_object() -> None:
    reference = ray.put(1)
    same = ray.ObjectRef(reference.binary())
    assert same == reference and hash(same) == hash(reference)
    assert ray.put(1) != reference


def test_a_reference_has_its_identifier_in_hexadecimal() -> None:
    reference = ray.put(1)
    assert len(reference.hex()) == 56 and reference.binary().hex() == reference.hex()
    assert reference.hex() in repr(reference)


def test_a_reference_knows_its_task() -> None:
    @ray.remote
    def own() -> str:
        return ray.get_runtime_context().get_task_id()

    reference = own.remote()
    assert reference.task_id().hex() == ray.get(reference)


def test_a_reference_can_be_awaited() -> None:
    async def main() -> int:
        return await ray.put(5)

    assert asyncio.run(main()) == 5


def test_awaiting_a_failed_task_raises() -> None:
    @ray.remote
    def fail() -> None:
        raise KeyError("no")

    async def main() -> None:
        await fail.remote()

    with pytest.raises(KeyError):
        asyncio.run(main())


def test_gather_takes_references() -> None:
    async def main() -> list:
        return await asyncio.gather(*[ray.put(i) for i in range(4)])

    assert asyncio.run(main()) == [0, 1, 2, 3]


def test_wait_for_of_asyncio_takes_a_reference(tmp_path: Any) -> None:
    async def main() -> None:
        await asyncio.wait_for(asyncio.wrap_future(slow.remote(tmp_path / "go").future()), timeout=0.1)

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(main())
    (tmp_path / "go").touch()


def test_a_future_of_a_reference_has_the_value() -> None:
    assert ray.put(7).future().result(timeout=30) == 7


def test_a_callback_of_a_future_is_called() -> None:
    results: list = []
    future = ray.put(7).future()
    future.add_done_callback(lambda done: results.append(done.result()))
    deadline = time.monotonic() + 30
    while not results and time.monotonic() < deadline:
        time.sleep(0.01)
    assert results == [7]


def test_as_completed_yields_values_as_they_come(tmp_path: Any) -> None:
    waiting, ready = slow.remote(tmp_path / "go", "late"), ray.put("early")
    values = ray.util.as_completed([waiting, ready], chunk_size=1)
    assert next(values) == "early"
    (tmp_path / "go").touch()
    assert next(values) == "late"


def test_map_unordered_gives_every_value() -> None:
    @ray.remote
    def double(x: int) -> int:
        return 2 * x

    assert sorted(ray.util.map_unordered(double, range(5))) == [0, 2, 4, 6, 8]


def test_a_large_object_goes_to_a_task_and_back() -> None:
    @ray.remote
    def double(array: Any) -> Any:
        return array * 2

    array = np.ones(1_000_000)
    assert ray.get(double.remote(ray.put(array))).sum() == 2_000_000


def test_references_nest() -> None:
    inner = ray.put("inner")
    outer = ray.put([inner, {"more": [inner]}])
    found = ray.get(outer)
    assert ray.get(found[0]) == "inner" and ray.get(found[1]["more"][0]) == "inner"


def test_a_nested_reference_outlives_the_one_it_came_in() -> None:
    outer = ray.put([ray.put(np.ones(200_000))])
    inner = ray.get(outer)[0]
    del outer
    assert ray.get(inner).sum() == 200_000


def test_a_class_with_reduce_travels_by_it() -> None:
    class Opened:
        def __init__(self, name: str) -> None:
            self.name, self.lock = name, __import__("threading").Lock()

        def __reduce__(self) -> tuple:
            return Opened, (self.name,)

    assert ray.get(ray.put(Opened("a"))).name == "a"


def test_a_serializer_of_the_programs_own_is_used() -> None:
    class Locked:
        def __init__(self, value: int) -> None:
            self.value, self.lock = value, __import__("threading").Lock()

    ray.util.register_serializer(Locked, serializer=lambda one: one.value, deserializer=lambda value: Locked(value + 1))
    try:
        assert ray.get(ray.put(Locked(1))).value == 2
    finally:
        ray.util.deregister_serializer(Locked)


def test_a_value_that_cannot_be_pickled_is_refused() -> None:
    import threading

    with pytest.raises(TypeError, match="Could not serialize"):
        ray.put(threading.Lock())


def test_inspect_serializability_finds_the_culprit() -> None:
    import threading

    lock = threading.Lock()

    def captures() -> Any:
        return lock

    is_fine, failures = ray.util.inspect_serializability(captures, name="captures")
    assert not is_fine
    assert [failure.path[-1] for failure in failures] == ["lock"]


def test_an_exception_can_be_put() -> None:
    error = ray.get(ray.put(ValueError("value")))
    assert isinstance(error, ValueError) and error.args == ("value",)


def test_small_and_large_results_are_alike() -> None:
    @ray.remote
    def make(size: int) -> bytes:
        return b"x" * size

    for size in (0, 1, 100, 99_000, 200_000, 2_000_000):
        assert len(ray.get(make.remote(size))) == size


def test_a_reference_goes_through_several_hands() -> None:
    @ray.remote
    def hand(reference: list, depth: int) -> Any:
        return ray.get(reference[0]) if depth == 0 else ray.get(hand.remote(reference, depth - 1))

    assert ray.get(hand.remote([ray.put("value")], 3), timeout=60) == "value"


def test_a_value_lives_as_long_as_somebody_refers_to_it(eventually: Callable[..., Any]) -> None:
    @ray.remote
    class Holder:
        def hold(self, references: list) -> None:
            self.references = references

        def read(self) -> int:
            return int(ray.get(self.references[0]).sum())

    holder = Holder.remote()
    reference = ray.put(np.ones(300_000))
    ray.get(holder.hold.remote([reference]))
    del reference
    assert ray.get(holder.read.remote()) == 300_000


def test_numpy_scalars_and_structures_travel() -> None:
    value = {"a": np.float32(1.5), "b": np.arange(3), "c": [np.int64(3)]}
    found = ray.get(ray.put(value))
    assert found["a"] == np.float32(1.5) and found["b"].tolist() == [0, 1, 2] and found["c"] == [3]


def test_get_in_a_task_waits_for_what_others_make(tmp_path: Any) -> None:
    @ray.remote
    def read(references: list) -> Any:
        return ray.get(references[0])

    reading = read.remote([slow.remote(tmp_path / "go", 5)])
    (tmp_path / "go").touch()
    assert ray.get(reading, timeout=30) == 5


def test_a_list_is_got_in_the_order_of_its_references() -> None:
    @ray.remote
    def later(value: int) -> int:
        time.sleep(0.05 * (3 - value))
        return value

    assert ray.get([later.remote(i) for i in range(3)]) == [0, 1, 2]
