"""Values with many references inside, and memory that goes from one value to the next."""

from __future__ import annotations

import gc
import pickle

import numpy
import pytest
import ray
import settled
from oxiray import _core

from spilled import MIB

MANY = 1000


pytestmark = pytest.mark.usefixtures("small_store")


@ray.remote
def make(count):
    return [ray.put(number) for number in range(count)]


@ray.remote
class Actor:
    def give(self, value):
        return value


class Backwards:
    """References that are made anew in another order than they were written in, and one that is read at once."""

    def __init__(self, first, second):
        self.first, self.second = first, second

    def __reduce__(self):
        return _backwards, (pickle.dumps([self.first, self.second]),)


def _backwards(dumped):
    first, second = pickle.loads(dumped)
    ray.get(second)
    del second
    later = pickle.loads(dumped)
    return Backwards(first, later[1])


def test_many_references_are_good_as_long_as_they_live_and_then_gone() -> None:
    holder = make.remote(MANY)
    references = ray.get(holder)
    again = ray.get(holder)
    assert references == again and len(set(references)) == MANY
    del holder, again
    gc.collect()
    assert ray.get(references) == list(range(MANY))
    del references
    assert settled.settle() == {}


def test_references_of_any_shape_and_order_are_counted() -> None:
    actor = Actor.remote()
    one, two, three = ray.put(1), ray.put(2), ray.get(make.remote(1))[0]
    value = {"actor": actor, "twice": [one, one, ray.ObjectRef(one.binary())], "odd": Backwards(two, three), "end": three}
    for held in (ray.put(value), actor.give.remote(value), actor.give.remote(ray.put(value))):
        got = ray.get(held)
        assert got["twice"] == [one] * 3 and got["twice"][0] is got["twice"][1]
        assert ray.get([got["odd"].first, got["odd"].second, got["end"], *got["twice"]]) == [2, 0, 0, 1, 1, 1]
        assert ray.get(got["actor"].give.remote(5)) == 5
    del actor, one, two, three, value, held, got
    assert settled.settle() == {}


def test_references_that_cannot_be_made_anew_are_given_back() -> None:
    broken = ray.put([ray.put(1), Fails(), ray.put(2)])
    for _ in range(3):
        with pytest.raises(ray.exceptions.RaySystemError, match="on purpose"):
            ray.get(broken)
    del broken
    assert settled.settle() == {}


class Fails:
    def __reduce__(self):
        return _fail, ()


def _fail():
    raise RuntimeError("on purpose")


def test_the_collector_is_as_it_was_after_many_references() -> None:
    holder = make.remote(MANY)
    ray.get(holder)
    assert gc.isenabled()
    gc.disable()
    try:
        ray.get(holder)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_was_let_go_is_written_again() -> None:
    assert settled.settle() == {}
    array = numpy.random.default_rng(1).integers(0, 255, 34 * MIB, dtype=numpy.uint8)
    counts = []
    for _ in range(4):
        reference = ray.put(array)
        assert numpy.array_equal(ray.get(reference), array)
        counts.append(_core.cluster()["store"]["files"])
        del reference
    assert counts == counts[:1] * 4
