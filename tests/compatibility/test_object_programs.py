"""Programs of objects: values of every kind, serializers, and who keeps what."""

from __future__ import annotations

import asyncio
import collections
import copy
import datetime
import decimal
import enum
import gc
import pathlib
import pickle
import threading
import uuid
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
import ray
from ray import cloudpickle

pytestmark = pytest.mark.usefixtures("session")
Eventually = Callable[..., Any]


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    left: int
    right: str


@dataclass
class Node:
    value: int
    others: list[Node] = field(default_factory=list)


@ray.remote
def kind(value: Any) -> str:
    return type(value).__name__


@ray.remote
def same(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    "value",
    [
        Colour.RED,
        Pair(1, "two"),
        datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc),
        datetime.timedelta(days=1),
        decimal.Decimal("1.5"),
        uuid.UUID(int=5),
        pathlib.Path("/tmp/x"),
        collections.OrderedDict(a=1),
        collections.deque([1, 2], maxlen=3),
        collections.Counter("aab"),
        collections.defaultdict(list, a=[1]),
        {"nested": {"deep": [1, (2, {3: None})]}},
        {(1, 2): "tuple as a key"},
        "ünïcode \U0001f600",
        "",
        b"",
        -(1 << 200),
        float("-inf"),
        np.float32(1.5),
        np.datetime64("2024-02-29"),
        np.dtype("int16"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_this_value_comes_back_as_it_was(value: Any) -> None:
    for given in (ray.get(ray.put(value)), ray.get(same.remote(value))):
        assert given == value
        assert type(given) is type(value)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(0),
        np.array(5),
        np.arange(24).reshape(2, 3, 4),
        np.asfortranarray(np.arange(1_000_000).reshape(1000, 1000)),
        np.arange(100)[::3],
        np.array(["text", "more"]),
        np.array([b"bytes"]),
        np.array([None, 1, "x"], dtype=object),
        np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
        np.array([True, False]),
        np.arange(3, dtype=">i4"),
        np.array([1 + 2j]),
        np.ma.masked_array([1, 2, 3], mask=[0, 1, 0]),
    ],
    ids=lambda array: f"{array.dtype}-{'x'.join(map(str, array.shape))}",
)
def test_this_array_comes_back_as_it_was(array: np.ndarray) -> None:
    given = ray.get(ray.put(array))
    assert (given.dtype, given.shape, type(given)) == (array.dtype, array.shape, type(array))
    assert np.array_equal(np.asarray(given), np.asarray(array))


def test_a_cycle_comes_back_as_a_cycle() -> None:
    node = Node(1)
    node.others.append(node)
    given = ray.get(same.remote(node))
    assert given.others[0] is given


@pytest.mark.differs("lists of plain values are written by msgpack, which knows no identity")
def test_what_is_shared_within_a_value_stays_shared() -> None:
    inner = [1]
    given = ray.get(ray.put([inner, inner]))
    assert given[0] is given[1]


def test_two_gets_of_a_list_are_apart() -> None:
    reference = ray.put([1, 2])
    one, other = ray.get(reference), ray.get(reference)
    one.append(3)
    assert (one, other, ray.get(reference)) == ([1, 2, 3], [1, 2], [1, 2])


def test_two_gets_of_an_array_share_their_memory() -> None:
    reference = ray.put(np.zeros(1_000_000))
    one, other = ray.get(reference), ray.get(reference)
    assert one.__array_interface__["data"][0] == other.__array_interface__["data"][0]


def test_a_small_array_is_read_only_too() -> None:
    array = ray.get(ray.put(np.zeros(3)))
    assert array.flags.writeable is False
    with pytest.raises(ValueError, match="read-only"):
        array += 1


def test_arrays_within_a_dictionary_are_read_without_copies() -> None:
    given = ray.get(ray.put({"a": np.zeros(200_000), "b": [np.ones(200_000)]}))
    assert not given["a"].flags.writeable
    assert not given["b"][0].flags.owndata


def test_an_array_stays_readable_when_its_reference_is_gone() -> None:
    reference = ray.put(np.arange(1_000_000))
    array = ray.get(reference)
    del reference
    gc.collect()
    ray.get([same.remote(np.zeros(1_000_000)) for _ in range(3)])
    assert int(array.sum()) == 499999500000


def test_a_slice_of_a_got_array_keeps_its_memory() -> None:
    part = ray.get(ray.put(np.arange(1_000_000)))[10:20]
    gc.collect()
    assert part.tolist() == list(range(10, 20))


def test_bytes_of_a_great_size_come_back() -> None:
    data = bytes(range(256)) * 40_000
    assert ray.get(same.remote(data)) == data


@pytest.mark.differs("a bytearray comes back as bytes")
def test_a_bytearray_can_be_written() -> None:
    given = ray.get(ray.put(bytearray(b"x" * 500_000)))
    given[0] = 65
    assert given[:2] == b"Ax"


def test_pickle_of_protocol_five_keeps_buffers_out_of_band() -> None:
    class Holder:
        def __init__(self, data: Any) -> None:
            self.data = data

        def __reduce_ex__(self, protocol: int) -> Any:
            return Holder, (pickle.PickleBuffer(self.data),)

    given = ray.get(ray.put(Holder(bytearray(b"y" * 200_000))))
    assert bytes(given.data)[:2] == b"yy"
    assert memoryview(given.data).readonly


def test_getstate_and_setstate_are_used() -> None:
    class Stateful:
        def __init__(self) -> None:
            self.lock = threading.Lock()
            self.value = 5

        def __getstate__(self) -> dict[str, Any]:
            return {"value": self.value + 1}

        def __setstate__(self, state: dict[str, Any]) -> None:
            self.__dict__.update(state)
            self.lock = threading.Lock()

    given = ray.get(ray.put(Stateful()))
    assert given.value == 6
    assert given.lock.acquire(blocking=False)


def test_a_class_of_the_program_keeps_its_methods() -> None:
    class Greeter:
        def greet(self, name: str) -> str:
            return f"hello {name}"

    @ray.remote
    def greet(greeter: Any) -> str:
        return greeter.greet("you")

    assert ray.get(greet.remote(Greeter())) == "hello you"


def test_functions_and_classes_are_values() -> None:
    class Local:
        pass

    function, cls = ray.get(ray.put([lambda value: value * 2, Local]))
    assert function(4) == 8
    assert cls.__name__ == "Local"


def test_a_serializer_is_registered_and_taken_back() -> None:
    class Special:
        def __init__(self, value: int) -> None:
            self.value, self.lock = value, threading.Lock()

    ray.util.register_serializer(
        Special, serializer=lambda special: special.value, deserializer=lambda value: Special(value + 1)
    )
    assert ray.get(ray.put(Special(1))).value == 2
    ray.util.deregister_serializer(Special)
    with pytest.raises(TypeError):
        ray.put(Special(1))


@pytest.mark.parametrize("make", [threading.Lock, lambda: (one for one in range(3))], ids=["lock", "generator"])
def test_what_python_cannot_pickle_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match="Could not serialize the put value"):
        ray.put(make())


def test_a_result_that_cannot_be_pickled_is_an_error_of_the_task() -> None:
    @ray.remote
    def lock() -> Any:
        return threading.Lock()

    with pytest.raises(Exception, match="cannot pickle '_thread.lock' object"):
        ray.get(lock.remote())


def test_an_argument_is_pickled_when_the_task_is_called() -> None:
    values = [1]
    reference = same.remote(values)
    values.append(2)
    assert ray.get(reference) == [1]


def test_a_put_value_is_what_it_was_when_it_was_put() -> None:
    array = np.zeros(1000)
    reference = ray.put(array)
    array[:] = 1
    assert ray.get(reference).sum() == 0


def test_cloudpickle_is_the_one_of_the_programs() -> None:
    function = cloudpickle.loads(cloudpickle.dumps(lambda value: value + 1))
    assert function(1) == 2


def test_a_module_is_pickled_by_value_where_that_is_asked_for(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib
    import sys

    (tmp_path / "only_here.py").write_text("def answer():\n    return 42\n")
    sys.path.insert(0, str(tmp_path))
    try:
        module = importlib.import_module("only_here")
    finally:
        sys.path.remove(str(tmp_path))
    cloudpickle.register_pickle_by_value(module)
    try:
        assert ray.get(ray.remote(module.answer).remote()) == 42
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def test_a_reference_can_be_copied() -> None:
    reference = ray.put(1)
    assert copy.copy(reference) == reference == copy.deepcopy(reference)
    assert ray.get(copy.copy(reference)) == 1


def test_a_reference_can_be_pickled_by_the_programs_pickler() -> None:
    reference = ray.put([1, 2])
    assert ray.get(cloudpickle.loads(cloudpickle.dumps(reference))) == [1, 2]


def test_a_reference_has_no_value_until_it_is_got() -> None:
    reference = ray.put(5)
    assert isinstance(reference, ray.ObjectRef)
    with pytest.raises(TypeError):
        reference + 1
    with pytest.raises(TypeError):
        list(reference)


def test_a_reference_is_true_and_printed_with_its_digits() -> None:
    reference = ray.put(0)
    assert bool(reference)
    assert repr(reference) == f"ObjectRef({reference.hex()})"


def test_weak_references_of_values_die_with_them() -> None:
    value = Node(1)
    weak = weakref.ref(value)
    reference = ray.put(value)
    del value
    gc.collect()
    assert weak() is None
    assert ray.get(reference).value == 1


def test_references_in_objects_of_the_program_are_found() -> None:
    class Holder:
        def __init__(self, reference: Any) -> None:
            self.reference = reference

    @ray.remote
    def read(holder: Any) -> Any:
        return ray.get(holder.reference)

    assert ray.get(read.remote(Holder(ray.put("inside")))) == "inside"


def test_a_reference_in_a_result_outlives_its_task() -> None:
    @ray.remote
    def outer() -> dict[str, Any]:
        return {"inner": ray.put(np.arange(200_000))}

    assert ray.get(ray.get(outer.remote())["inner"])[-1] == 199_999


def test_references_of_references_of_tasks() -> None:
    @ray.remote
    def third() -> int:
        return 3

    @ray.remote
    def second() -> Any:
        return third.remote()

    @ray.remote
    def first() -> Any:
        return second.remote()

    assert ray.get(ray.get(ray.get(first.remote()))) == 3


def test_get_takes_a_list_with_the_same_reference_twice() -> None:
    reference = ray.put(4)
    assert ray.get([reference, reference]) == [4, 4]


@pytest.mark.parametrize("wrong", [5, None, "text", [5], {"a": 1}, [[1]]], ids=repr)
def test_get_of_what_is_no_reference_is_refused(wrong: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        ray.get(wrong)


def test_get_of_a_dictionary_of_references_is_refused() -> None:
    with pytest.raises(ValueError):
        ray.get({"a": ray.put(1)})


def test_get_of_a_tuple_is_refused() -> None:
    with pytest.raises(ValueError):
        ray.get((ray.put(1), ray.put(2)))


def test_negative_timeouts_wait_for_ever() -> None:
    reference = same.remote(1)
    assert ray.get(reference, timeout=-1) == 1


@pytest.mark.parametrize("timeout", [0.5, 5, None])
def test_timeouts_are_numbers_or_nothing(timeout: float | None) -> None:
    assert ray.get(ray.put(1), timeout=timeout) == 1


def test_wait_refuses_a_negative_timeout() -> None:
    with pytest.raises(ValueError, match="timeout"):
        ray.wait([ray.put(1)], timeout=-1)


@pytest.mark.parametrize("count", [0, -1])
def test_wait_refuses_to_return_nothing(count: int) -> None:
    with pytest.raises(ValueError, match="Invalid number of objects to return"):
        ray.wait([ray.put(1)], num_returns=count)


def test_wait_takes_lists_only() -> None:
    with pytest.raises(TypeError):
        ray.wait((ray.put(1),))
    with pytest.raises(TypeError):
        ray.wait([1])


def test_wait_without_fetching_says_what_exists() -> None:
    reference = same.remote(np.zeros(200_000))
    assert ray.wait([reference], fetch_local=False, timeout=60) == ([reference], [])


def test_many_small_objects_are_put_and_got() -> None:
    references = [ray.put(index) for index in range(2000)]
    assert ray.get(references) == list(range(2000))


def test_a_future_may_be_awaited_in_several_loops() -> None:
    reference = same.remote(3)

    async def read() -> int:
        return await reference

    assert [asyncio.run(read()), asyncio.run(read())] == [3, 3]


def test_the_size_of_what_is_put_may_be_above_the_limit_of_inlining() -> None:
    for size in (99 * 1024, 100 * 1024, 101 * 1024, 5 * 1024 * 1024):
        assert len(ray.get(same.remote(b"z" * size))) == size


def test_the_kind_of_a_value_is_what_it_was() -> None:
    assert ray.get([kind.remote(value) for value in (1, 1.0, "1", b"1", None, [1], {1})]) == [
        "int",
        "float",
        "str",
        "bytes",
        "NoneType",
        "list",
        "set",
    ]
