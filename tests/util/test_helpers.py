"""`as_completed`, `map_unordered`, `get_node_ip_address`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray
from ray.util import as_completed, get_node_ip_address, map_unordered
from ray.util.queue import Queue


@ray.remote(num_cpus=0)
def double(value: int) -> int:
    if value < 0:
        raise ValueError("negative")
    return 2 * value


@ray.remote(num_cpus=0)
def wait_for(queue: Queue) -> Any:
    return queue.get()


def test_what_is_done_comes_first(cluster: Callable[..., Any]) -> None:
    cluster()
    queue = Queue()
    results = as_completed([wait_for.remote(queue), double.remote(1), double.remote(2)], chunk_size=1)
    assert sorted([next(results), next(results)]) == [2, 4]
    queue.put("late")
    assert list(results) == ["late"]


def test_references_instead_of_values(cluster: Callable[..., Any]) -> None:
    cluster()
    refs = [double.remote(value) for value in range(25)]
    assert set(as_completed(refs, yield_obj_refs=True)) == set(refs)
    assert sorted(ray.get(list(map_unordered(double, range(3), yield_obj_refs=True)))) == [0, 2, 4]
    assert list(as_completed([])) == []


def test_an_error_is_raised(cluster: Callable[..., Any]) -> None:
    cluster()
    with pytest.raises(ValueError, match="negative"):
        list(as_completed([double.remote(-1)]))
    with pytest.raises(ValueError, match="negative"):
        list(map_unordered(double, [-1]))


@pytest.mark.parametrize("limit", [1, 3, 100, None])
def test_every_item_is_mapped(cluster: Callable[..., Any], limit: int | None) -> None:
    cluster()
    results = map_unordered(double, range(25), backpressure_size=limit, chunk_size=2)
    assert sorted(results) == [2 * value for value in range(25)]


def test_items_are_read_no_faster_than_allowed(cluster: Callable[..., Any]) -> None:
    cluster()
    read = []

    def items() -> Iterator[int]:
        for item in range(100):
            read.append(item)
            yield item

    results = map_unordered(double, items(), backpressure_size=4, chunk_size=1)
    assert read == []
    next(results)
    assert len(read) == 4


@pytest.mark.parametrize(
    "refused",
    [
        lambda: as_completed([], chunk_size=0),
        lambda: as_completed([], num_returns=1),
        lambda: map_unordered(double, [], chunk_size=0),
        lambda: map_unordered(double, [], backpressure_size=0),
        lambda: map_unordered(double, [], num_returns=1),
    ],
)
def test_what_makes_no_sense_is_refused(refused: Callable[[], Any]) -> None:
    with pytest.raises(ValueError):
        refused()


def test_the_address_of_this_machine(cluster: Callable[..., Any]) -> None:
    assert get_node_ip_address() == "127.0.0.1"
    cluster()
    assert f"node:{get_node_ip_address()}" in ray.cluster_resources()
