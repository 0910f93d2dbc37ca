"""The place where ranks meet, by itself: what goes on without a rank that is excused, and what does not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from oxiray.train import _failing
from oxiray.train._errors import WorkerDiedError
from oxiray.train._exchange import Exchange

#: How long a meeting that nothing holds up may take, in seconds.
LIMIT_S = 30.0


async def begun(call: Any) -> asyncio.Task[Any]:
    """A call that waits for others by now."""
    task = asyncio.create_task(call)
    await asyncio.sleep(0)
    return task


@pytest.mark.parametrize("kind", ["barrier", "broadcast"])
def test_a_late_rank_is_waited_for_where_its_value_is_needed(kind: str) -> None:
    async def meets() -> list[Any]:
        exchange = Exchange(2, 60.0)
        first = await begun(exchange.meet(kind, 1, 0, b"0"))
        await exchange.excuse({1: b"gone"})
        await asyncio.sleep(0)
        assert not first.done()
        assert await exchange.missing() == {f"{kind} 1": [1]}
        late = await exchange.meet(kind, 1, 1, b"1")
        return [await asyncio.wait_for(first, LIMIT_S), late]

    assert asyncio.run(meets()) == [{0: b"0", 1: b"1"}] * 2


def test_a_late_rank_is_told_of_and_not_waited_for_where_machines_are_asked_about() -> None:
    async def meets() -> list[Any]:
        exchange = Exchange(2, 60.0)
        first = await begun(exchange.meet("get_preemption_info", 1, 0, b"0"))
        await exchange.excuse({1: b"gone"})
        others = await asyncio.wait_for(first, LIMIT_S)
        return [others, await asyncio.wait_for(exchange.meet("get_preemption_info", 1, 1, b"1"), LIMIT_S)]

    assert asyncio.run(meets()) == [{0: b"0", 1: b"gone"}, {1: b"1"}]


def test_a_barrier_fails_that_an_excused_rank_returned_before() -> None:
    async def meets() -> None:
        exchange = Exchange(2, 60.0)
        first = await begun(exchange.meet("barrier", 1, 0, b""))
        await exchange.excuse({1: b"gone"})
        await exchange.end(1)
        await asyncio.wait_for(first, LIMIT_S)

    with pytest.raises(RuntimeError, match="rank 1 returned after 0 reports"):
        asyncio.run(meets())


def test_a_round_that_a_rank_has_come_too_late_for_is_forgotten() -> None:
    async def meets() -> Exchange:
        exchange = Exchange(2, 60.0)
        first = await begun(exchange.report(0, 1, b"0", "name", False))
        await exchange.excuse({1: b"gone"})
        assert await asyncio.wait_for(first, LIMIT_S) == "name"
        first = await begun(exchange.stored(0, 1, ("name", {}, None)))
        assert await asyncio.wait_for(exchange.news(), LIMIT_S) == [("checkpoint", 1, ([b"0"], [("name", {}, None)]))]
        await exchange.settle(1, None, None)
        await asyncio.wait_for(first, LIMIT_S)
        assert await asyncio.wait_for(exchange.report(1, 1, b"1", "other", False), LIMIT_S) is None
        return exchange

    exchange = asyncio.run(meets())
    assert not exchange.missed and not exchange.rounds and not exchange.metrics


def test_an_error_of_the_program_is_no_preemption_though_its_rank_is_excused() -> None:
    group = SimpleNamespace(excused={1: b""}, workers=[SimpleNamespace(facts={"node_id": node}) for node in ("a", "b")])
    assert not _failing.is_preempted({1: ValueError("wrong")}, group, {"b"})
    assert _failing.is_preempted({1: WorkerDiedError("gone")}, group, set())
    assert not _failing.is_preempted({0: WorkerDiedError("gone")}, group, {"b"})
