"""References to items that are not there yet, which Ray Serve waits for: `_get_next_ref_n`, `_consume_next_ref_n`, `_on_ready`."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, ObjectRefStreamEndOfStreamError
from watching import wait_until

pytestmark = pytest.mark.usefixtures("nothing_left")
#: How long anything may take, in seconds.
PATIENCE_S = 60


@ray.remote
class Gate:
    """Yields a number whenever somebody lets one through."""

    def __init__(self) -> None:
        self.let_through: queue.Queue[bool] = queue.Queue()

    def count(self, end: int) -> Iterator[int]:
        for number in range(end):
            if not self.let_through.get(timeout=PATIENCE_S):
                raise ValueError("enough")
            yield number

    def open(self, goes_on: bool = True) -> None:
        self.let_through.put(goes_on)


def a_gate() -> Any:
    return Gate.options(max_concurrency=2).remote()


def let(gate: Any, items: int) -> None:
    ray.get([gate.open.remote() for _ in range(items)], timeout=PATIENCE_S)


def test_references_are_there_before_their_items() -> None:
    gate = a_gate()
    items = gate.count.remote(2)
    first, second, third = items._get_next_ref_n(3)
    assert ray.wait([first, second, third], num_returns=1, timeout=0) == ([], [first, second, third])
    let(gate, 1)
    assert ray.get(first, timeout=PATIENCE_S) == 0
    assert ray.wait([second], timeout=0)[0] == []
    let(gate, 1)
    assert ray.get(second, timeout=PATIENCE_S) == 1
    with pytest.raises(ObjectRefStreamEndOfStreamError, match="ended before it yielded item 2"):
        ray.get(third, timeout=PATIENCE_S)
    assert [ray.get(item) for item in items] == [0, 1], "what was only looked at is there to be read"


def test_what_is_passed_over_is_not_read_again() -> None:
    gate = a_gate()
    items = gate.count.remote(3)
    first, second = items._get_next_ref_n(2)
    with pytest.raises(ValueError, match="the next 2 items of the generator .* are not all there"):
        items._consume_next_ref_n(2)
    let(gate, 3)
    ray.wait([second], timeout=PATIENCE_S)
    items._consume_next_ref_n(2)
    assert ray.get([first, second]) == [0, 1]
    assert ray.get(items._get_next_ref_n(1)[0], timeout=PATIENCE_S) == 2
    assert [ray.get(item) for item in items] == [2]
    items._consume_next_ref_n(5)
    with pytest.raises(ObjectRefStreamEndOfStreamError):
        ray.get(items._get_next_ref_n(1)[0], timeout=PATIENCE_S)


@pytest.mark.parametrize("number", [0, -1])
def test_none_and_fewer_are_refused(number: int) -> None:
    gate = a_gate()
    items = gate.count.remote(0)
    for ask in (items._get_next_ref_n, items._consume_next_ref_n):
        with pytest.raises(ValueError, match=f"num_refs must be positive: it is {number}"):
            ask(number)


def test_an_exception_is_an_item_and_nothing_comes_after_it() -> None:
    gate = a_gate()
    items = gate.count.remote(5)
    error, after = items._get_next_ref_n(2)
    ray.get(gate.open.remote(False), timeout=PATIENCE_S)
    with pytest.raises(ValueError, match="enough"):
        ray.get(error, timeout=PATIENCE_S)
    with pytest.raises(ObjectRefStreamEndOfStreamError):
        ray.get(after, timeout=PATIENCE_S)


def test_an_actor_that_dies_is_the_error_of_all_that_did_not_come() -> None:
    gate = a_gate()
    items = gate.count.remote(5)
    waits = items._get_next_ref_n(3)
    let(gate, 1)
    assert ray.get(waits[0], timeout=PATIENCE_S) == 0
    ray.kill(gate)
    for reference in waits[1:] + items._get_next_ref_n(4)[3:]:
        with pytest.raises(ActorDiedError):
            ray.get(reference, timeout=PATIENCE_S)


def test_a_reference_travels_before_its_item_is_there() -> None:
    gate = a_gate()

    @ray.remote
    def double(value: int) -> int:
        return 2 * value

    @ray.remote
    def double_within(references: list[Any]) -> int:
        return 2 * ray.get(references[0], timeout=PATIENCE_S)

    items = gate.count.remote(2)
    _, second = items._get_next_ref_n(2)
    results = [double.remote(second), double_within.remote([second])]
    let(gate, 2)
    assert ray.get(results, timeout=PATIENCE_S) == [2, 2]


def test_the_reader_may_go_before_the_item_comes() -> None:
    gate = a_gate()
    items = gate.count.remote(2)
    first, second = items._get_next_ref_n(2)
    let(gate, 1)
    assert ray.get(first, timeout=PATIENCE_S) == 0
    # Nobody reads any more: the call is ended, and the item that is waited for does not come.
    del items
    let(gate, 1)
    ended = ray.wait([second], timeout=PATIENCE_S)[0]
    assert ended == [second]


def test_who_waits_for_a_value_is_told_without_fetching_it(tmp_path: Path) -> None:
    @ray.remote
    def wait_for(path: str) -> bytes:
        wait_until(Path(path).exists, PATIENCE_S)
        return bytes(1_000_000)

    reference = wait_for.remote(str(tmp_path / "go"))
    told: queue.Queue[BaseException | None] = queue.Queue()
    called_off = threading.Event()
    reference._on_ready(told.put)
    reference._on_ready(lambda _: called_off.set())()
    (tmp_path / "go").touch()
    assert told.get(timeout=PATIENCE_S) is None and not called_off.is_set()
    failed = ray.remote(lambda: 1 / 0).remote()
    failed._on_ready(told.put)
    assert told.get(timeout=PATIENCE_S) is None, "an error is there too"

    async def itself() -> Any:
        return await reference._ready()

    assert asyncio.run(itself()) == reference
