"""NumPy arrays, which are read without pickle once one of their kind was: they are what pickle makes of them."""

from __future__ import annotations

import gc
from typing import Any

import numpy
import pytest
import ray
from oxiray import _core
from watching import wait_until

ROWS = 400


@pytest.fixture(scope="module", autouse=True)
def running() -> Any:
    ray.shutdown()
    ray.init(num_cpus=1, object_store_memory=256 << 20)
    yield
    ray.shutdown()


def square(dtype: str) -> numpy.ndarray[Any, Any]:
    return (numpy.arange(ROWS * ROWS) % 100).reshape(ROWS, ROWS).astype(dtype)


def same(read: Any, kept: Any) -> bool:
    """Whether what was read is what was kept: its class, type, elements, shape and order."""
    of = ("dtype", "shape", "strides")
    equal = numpy.array_equal(read, kept, equal_nan=kept.dtype.kind in "fc")
    return type(read) is type(kept) and equal and all(getattr(read, name) == getattr(kept, name) for name in of)


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "g", "c8", "c16"])
@pytest.mark.parametrize("shape", [(ROWS * ROWS,), (ROWS, ROWS), (2, ROWS, ROWS // 2)])
def test_numbers_are_read_in_place(dtype: str, shape: tuple[int, ...]) -> None:
    kept = [square(dtype).reshape(shape), numpy.ascontiguousarray(square(dtype)[::-1]).reshape(shape)]
    for value, read in zip(kept, ray.get([ray.put(value) for value in kept]), strict=True):
        assert same(read, value)
        with pytest.raises(ValueError, match="read-only"):
            read[...] = 0
        with pytest.raises(ValueError, match="WRITEABLE"):
            read.flags.writeable = True
    # A type that pickle makes is a copy.
    assert read.dtype is numpy.dtype(dtype)


OTHERS: dict[str, Any] = {
    "Fortran's order": numpy.asfortranarray(square("f8")),
    "the other byte order": square(">i4"),
    "times": square("M8[s]"),
    "texts": square("U8"),
    "records": numpy.zeros(ROWS * ROWS, dtype=[("a", "i4"), ("b", "f8")]),
    "a matrix": numpy.asmatrix(square("f8")),
    "every second one": square("f8")[::2, ::2],
    "no dimension": numpy.array(5.0),
    "nothing": numpy.zeros((0, 5)),
    "objects": numpy.array([str(number) for number in range(50_000)], dtype=object),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_arrays_are_what_they_were(name: str) -> None:
    kept = OTHERS[name]
    for _ in range(3):
        read = ray.get(ray.put(kept))
        assert type(read) is type(kept) and read.dtype == kept.dtype and read.shape == kept.shape
        assert numpy.array_equal(read, kept)
        if kept.size:
            assert read.strides == (numpy.ascontiguousarray(kept) if name == "every second one" else kept).strides


def test_arrays_within_other_values() -> None:
    alone = square("f8")
    within = [(alone, "text"), {"array": alone}, [alone, alone + 1]]
    for _ in range(2):
        assert same(ray.get(ray.put(alone)), alone)
        first, second, third = ray.get([ray.put(value) for value in within])
        assert first[1] == "text" and same(first[0], alone) and same(second["array"], alone) and same(third[1], alone + 1)


@ray.remote
def doubled(array: Any) -> tuple[Any, bool]:
    return array * 2, array.flags.writeable


def test_arguments_and_results_small_and_large() -> None:
    for size in (10, 100, 100_000):
        array = numpy.arange(size, dtype="f8")
        for _ in range(2):
            result, is_writeable = ray.get(doubled.remote(array))
            assert same(result, array * 2) and not is_writeable


def test_an_array_keeps_its_memory_and_no_longer() -> None:
    rows = [numpy.full(1 << 20, number, dtype="u1") for number in range(64)]
    read = ray.get([ray.put(row) for row in rows])
    part = read[7][5:9]
    del read
    # Four times what the store holds: the memory of all but one is used again, and that one's is not.
    for number in range(1024):
        ray.get(ray.put(numpy.full(1 << 20, number % 251, dtype="u1")))
    gc.collect()
    assert part.tolist() == [7] * 4
    wait_until(lambda: _core.cluster()["store"]["objects"] == 1)
    del part
    wait_until(lambda: _core.cluster()["store"]["objects"] == 0)
