"""Results that come one by one: reading them in an event loop, and what a worker iterates over.

Invariants:
1. A wait for the next item sleeps until there is news of it; nothing is asked again and again.
2. A generator that was not run to its end is closed where its call ends.
3. asyncio, which would take a fourth of the time of `import oxiray`, is imported where there is an event loop.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from oxiray import _events
from oxiray._core import ObjectRef


class StreamingGeneratorStats:
    """What `yield` gives a generator whose items are objects: `object_creation_dur_s`, the seconds that it took to make one of
    what it had yielded."""

    __slots__ = ("object_creation_dur_s",)

    def __init__(self, object_creation_dur_s: float) -> None:
        self.object_creation_dur_s = object_creation_dur_s

    def __repr__(self) -> str:
        return f"StreamingGeneratorStats(object_creation_dur_s={self.object_creation_dur_s!r})"


#: What a completion answers to an item: the call goes on, waits for its reader, or ends without one.
ON, WAIT, STOP = 0, 1, 2
#: An event loop gets its turn after so many items, whatever the generator does.
_TURN_ITEMS = 16


async def next_item(generator: Any) -> Any:
    """The next reference of an `ObjectRefGenerator`. Raises `StopAsyncIteration` at the end."""
    while (taken := generator._take()) is False:
        await _told(generator._next_id(), generator._announce)
    if taken is None:
        raise StopAsyncIteration
    return taken


async def next_item_within(generator: Any, timeout: float | None) -> Any:
    """As `next_item`, for at most `timeout` seconds: a nil reference past them."""
    import asyncio

    try:
        return await asyncio.wait_for(next_item(generator), None if timeout is None or timeout < 0 else timeout)
    except asyncio.TimeoutError:
        return ObjectRef.nil()


async def _told(identifier: bytes, ask: Callable[[], bool]) -> None:
    """Sleeps until news of `identifier`, where `ask` says that there will be some."""
    import asyncio

    loop = asyncio.get_running_loop()
    answer = loop.create_future()

    def settle() -> None:
        if not answer.done():
            answer.set_result(None)

    def from_thread() -> None:
        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:
            pass  # the loop was closed; nobody waits any more

    _events.when_told(identifier, ask, from_thread)
    await answer


async def drain(items: Any, completion: Any) -> None:
    """Sends what a call of an async actor yields, at the pace of its reader."""
    import asyncio

    is_async = inspect.isasyncgen(items) or hasattr(items, "__anext__")
    if is_async:
        advance = items.__anext__
    else:
        advance = functools.partial(_advance, iter(items))
    sent = 0
    try:
        while True:
            try:
                item = await advance()
            except StopAsyncIteration:
                return
            pace = completion.send(item)
            while pace == WAIT:
                await _told(completion.id(), completion.announce)
                pace = completion.pace()
            if pace == STOP:
                return
            sent += 1
            if sent % _TURN_ITEMS == 0:
                await asyncio.sleep(0)
    finally:
        if inspect.isasyncgen(items):
            await items.aclose()
        elif hasattr(items, "close"):
            items.close()


async def _advance(items: Iterator[Any]) -> Any:
    try:
        return next(items)
    except StopIteration:
        raise StopAsyncIteration from None


def iterate(returned: Any) -> Any:
    """What a call returned, as something to iterate over outside of an event loop."""
    if inspect.isasyncgen(returned):
        return _run_async(returned)
    if not hasattr(returned, "__iter__"):
        raise TypeError(
            f"num_returns='streaming' was asked for, and the function returned a {type(returned).__name__}, which yields nothing"
        )
    return iter(returned)


def _run_async(items: Any) -> Iterator[Any]:
    """The items of an async generator, run by an event loop of its own."""
    import asyncio

    loop = asyncio.new_event_loop()
    try:
        while True:
            try:
                item = loop.run_until_complete(items.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        loop.run_until_complete(items.aclose())
        loop.close()
