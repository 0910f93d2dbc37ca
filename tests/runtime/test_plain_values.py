"""Values of built-in types, which travel without pickle: what comes back is what pickle would bring back."""

from __future__ import annotations

import collections
import gc
import math
import pickle
import random
import struct
import threading
from typing import Any

import pytest
import ray

MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def _cluster(two_cpus):
    return two_cpus


@ray.remote
def identity(value):
    return value


def back(value: Any) -> Any:
    return ray.get(ray.put(value))


def shape(value: Any, seen: dict[int, int] | None = None) -> Any:
    """Everything about a value that `==` does not tell: exact types, bits of floats, and which object stands where."""
    seen = {} if seen is None else seen
    if isinstance(value, (str, bytes, bytearray, list, tuple, dict, set, frozenset)):
        if id(value) in seen:
            return ("again", seen[id(value)])
        seen[id(value)] = len(seen)
    kind = type(value).__name__
    if isinstance(value, float):
        return (kind, struct.pack("<d", value))
    if isinstance(value, dict):
        return (kind, [(shape(key, seen), shape(item, seen)) for key, item in value.items()])
    if isinstance(value, (set, frozenset)):
        return (kind, sorted(f"{type(item).__name__} {item!a}" for item in value))
    if isinstance(value, (list, tuple)):
        return (kind, [shape(item, seen) for item in value])
    return (kind, value)


def anything(chance: random.Random, depth: int, made: list[Any]) -> Any:
    """A random value; now and then one that was made before, so that it stands in several places."""
    if made and chance.random() < 0.15:
        return chance.choice(made)
    if depth == 0 or chance.random() < 0.4:
        value = scalar(chance)
    else:
        count = chance.randrange(5)
        items = [anything(chance, depth - 1, made) for _ in range(count)]
        keys = [scalar(chance) for _ in range(count)]
        keys = [bytes(key) if isinstance(key, bytearray) else key for key in keys]
        kind = chance.choice(["list", "tuple", "dict", "set", "frozenset"])
        value = {
            "list": lambda: items,
            "tuple": lambda: tuple(items),
            "dict": lambda: dict(zip(keys, items, strict=True)),
            "set": lambda: set(keys),
            "frozenset": lambda: frozenset(keys),
        }[kind]()
    made.append(value)
    return value


def scalar(chance: random.Random) -> Any:
    return chance.choice(
        [
            lambda: None,
            lambda: chance.random() < 0.5,
            lambda: chance.randrange(-(1 << chance.randrange(1, 200)), 1 << chance.randrange(1, 200)),
            lambda: chance.choice([0.0, -0.0, math.inf, -math.inf, math.nan, chance.gauss(0, 1e300)]),
            lambda: "".join(chance.choice("ab\0é€\U0001f600\ud800\udfff") for _ in range(chance.randrange(300))),
            lambda: chance.randbytes(chance.randrange(400)),
            lambda: bytearray(chance.randbytes(chance.randrange(40))),
        ]
    )()


@pytest.mark.parametrize("seed", range(300))
def test_what_comes_back_is_what_pickle_would_bring(seed) -> None:
    chance = random.Random(seed)
    value = anything(chance, 5, [])
    assert shape(back(value)) == shape(pickle.loads(pickle.dumps(value, 5)))


EDGES = [
    *[sign * ((1 << bits) + more) for bits in (31, 63, 64, 4096) for more in (-1, 0, 1) for sign in (1, -1)],
    1 << 10000,
    *[-0.0, math.nan, math.inf, 5e-324, struct.unpack("<d", b"\1\0\0\0\0\0\xf4\x7f")[0]],
    *["", "\0", "\ud800", "naïve", "x" * MIB, "é" * MIB, b"", b"\xff" * 16383, b"\xff" * 16384, bytearray(), bytearray(MIB)],
    *[(), [], {}, set(), frozenset(), ((),), [()], {(): []}, {1: 1, True: 2}, [True, 1, 1.0, None]],
    {"b": 1, "a": 2, (1, "x"): {3}, frozenset({4}): frozenset()},
]


@pytest.mark.parametrize("value", EDGES, ids=lambda value: f"{type(value).__name__}-{str(value)[:20]!a}" if not isinstance(value, int) else hex(value)[:24])
def test_edges_come_back(value) -> None:
    for came in (back(value), ray.get(identity.remote(value)), ray.get(identity.remote([value]))[0]):
        assert shape(came) == shape(value)


def test_dictionaries_keep_their_order() -> None:
    keys = list(range(1000))
    random.Random(1).shuffle(keys)
    assert list(back({key: None for key in keys})) == keys


def test_an_object_in_several_places_is_one_object_again() -> None:
    text, items, pair = "some text", [1], ("a", [2])
    first, second, third, fourth, fifth, sixth = back([text, items, pair, items, text, pair])
    assert first is fifth and second is fourth and third is sixth
    second.append(2)
    assert fourth == [1, 2]
    large = bytes(MIB)
    one, other = back((large, large))
    assert one is other and one == large


def test_containers_that_contain_themselves() -> None:
    items: list[Any] = []
    items.append(items)
    came = back(items)
    assert came[0] is came
    table: dict[str, Any] = {"items": [1]}
    table["items"].append(table)
    came = back(table)
    assert came["items"][1] is came
    inner: list[Any] = []
    pair = (inner, "x")
    inner.append(pair)
    came = back(pair)
    assert came[0][0] is came


def test_subclasses_come_back_as_what_they_are() -> None:
    Point = collections.namedtuple("Point", "x y")
    point = ray.get(identity.remote(Point(1, 2)))
    assert point == (1, 2) and point.y == 2
    counted = back([1, collections.Counter("aab"), collections.OrderedDict(a=1), collections.defaultdict(list, b=[2])])
    assert [type(part).__name__ for part in counted] == ["int", "Counter", "OrderedDict", "defaultdict"]


def test_what_is_nested_deeply_comes_back_or_is_refused_in_words() -> None:
    def nested(depth: int) -> Any:
        value: Any = "core"
        for _ in range(depth):
            value = [value]
        return value

    for depth in (150, 199, 200, 201, 300):
        came = back(nested(depth))
        while isinstance(came, list):
            came = came[0]
        assert came == "core"
    with pytest.raises(TypeError, match="Could not serialize"):
        ray.put(nested(100_000))


def test_what_cannot_be_serialized_is_named_by_its_place() -> None:
    with pytest.raises(TypeError, match="inner"):
        ray.put({"fine": [1, 2], "inner": threading.Lock()})


def test_memoryviews_become_bytes() -> None:
    data = bytes(range(256)) * 1000
    assert back(memoryview(data)) == data and type(back(memoryview(data))) is bytes
    assert back([memoryview(data)[100:200]]) == [data[100:200]]
    assert back(memoryview(data)[::2]) == data[::2]
    assert back(memoryview(data).cast("I")) == data


def test_large_bytes_are_not_copied_on_their_way_into_the_store() -> None:
    """A value is as large in the store as its bytes, wherever they stand, and a `bytearray` can be written to again."""
    array = bytearray(b"a" * (2 * MIB))
    value = {"bytes": bytes(3 * MIB), "array": array}
    reference = ray.put(value)
    array += b"more"
    came = ray.get(reference)
    assert came["bytes"] == bytes(3 * MIB) and came["array"] == b"a" * (2 * MIB)
    came["array"][0] = 0
    assert ray.get(reference)["array"] == b"a" * (2 * MIB)


class Holder:
    def __init__(self, data: bytes):
        self.data = data


def test_large_bytes_within_an_object() -> None:
    data = random.Random(1).randbytes(3 * MIB)
    assert back(Holder(data)).data == data
    assert ray.get(identity.remote([Holder(data), data]))[1] == data


def test_the_collector_is_as_before() -> None:
    many = [(number, str(number)) for number in range(100_000)]
    assert gc.isenabled() and back(many) == many and gc.isenabled()
    gc.disable()
    try:
        assert back(many) == many and not gc.isenabled()
    finally:
        gc.enable()
