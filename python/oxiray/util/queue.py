"""A first-in, first-out queue that every process of the cluster can use.

Purpose: an async actor holds an `asyncio.Queue`; a `Queue` is a handle of it, and travels as one.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import oxiray
from oxiray import _missing


class Empty(queue.Empty):
    """There was nothing to take, in the time given."""


class Full(queue.Full):
    """There was no room, in the time given."""


class Queue:
    """A queue of at most `maxsize` items, or any number with 0, in an actor made with `actor_options`."""

    def __init__(self, maxsize: int = 0, actor_options: dict[str, Any] | None = None) -> None:
        self.maxsize = maxsize
        make: Any = oxiray.remote(_QueueActor)
        self.actor: Any = make.options(**(actor_options or {})).remote(maxsize)

    def __len__(self) -> int:
        return self.size()

    def size(self) -> int:
        """How many items it holds."""
        return int(oxiray.get(self._living().qsize.remote()))

    def qsize(self) -> int:
        """How many items it holds."""
        return self.size()

    def empty(self) -> bool:
        """Whether it holds nothing."""
        return bool(oxiray.get(self._living().empty.remote()))

    def full(self) -> bool:
        """Whether it holds `maxsize` items."""
        return bool(oxiray.get(self._living().full.remote()))

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Adds an item, waiting for room up to `timeout` seconds. Raises `Full` where there is none."""
        with _plain_errors():
            oxiray.get(self._put(item, block, timeout))

    async def put_async(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """`put` for async code."""
        with _plain_errors():
            await self._put(item, block, timeout)

    def _put(self, item: Any, block: bool, timeout: float | None) -> Any:
        if not block:
            return self._living().put_nowait.remote(item)
        _check_timeout(timeout)
        return self._living().put.remote(item, timeout)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Takes the oldest item, waiting for one up to `timeout` seconds. Raises `Empty` where there is none."""
        with _plain_errors():
            return oxiray.get(self._get(block, timeout))

    async def get_async(self, block: bool = True, timeout: float | None = None) -> Any:
        """`get` for async code."""
        with _plain_errors():
            return await self._get(block, timeout)

    def _get(self, block: bool, timeout: float | None) -> Any:
        if not block:
            return self._living().get_nowait.remote()
        _check_timeout(timeout)
        return self._living().get.remote(timeout)

    def put_nowait(self, item: Any) -> None:
        """Adds an item. Raises `Full` where there is no room."""
        self.put(item, block=False)

    def put_nowait_batch(self, items: Iterable[Any]) -> None:
        """Adds all of `items` in their order, or none of them and raises `Full`."""
        if not isinstance(items, Iterable):
            raise TypeError(f"Argument 'items' must be an Iterable. It is a {type(items)}")
        with _plain_errors():
            oxiray.get(self._living().put_nowait_batch.remote(list(items)))

    def get_nowait(self) -> Any:
        """Takes the oldest item. Raises `Empty` where there is none."""
        return self.get(block=False)

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        """Takes the `num_items` oldest items, or none of them and raises `Empty`."""
        if not isinstance(num_items, int):
            raise TypeError(f"Argument 'num_items' must be an int. It is a {type(num_items)}")
        if num_items < 0:
            raise ValueError(f"'num_items' must be nonnegative. It is {num_items}")
        with _plain_errors():
            return list(oxiray.get(self._living().get_nowait_batch.remote(num_items)))

    def shutdown(self, force: bool = False, grace_period_s: float = 5) -> None:
        """Ends the queue's actor: after its calls, for which it has `grace_period_s`, or at once with `force`."""
        actor, self.actor = self.actor, None
        if actor is None:
            return
        if not force:
            ended, _ = oxiray.wait([actor.__ray_terminate__.remote()], timeout=grace_period_s)
            if ended:
                return
        oxiray.kill(actor)

    def _living(self) -> Any:
        if self.actor is None:
            raise RuntimeError("the queue was shut down: make another one")
        return self.actor


def _check_timeout(timeout: float | None) -> None:
    if timeout is not None and timeout < 0:
        raise ValueError(f"'timeout' must be a non-negative number, or None for no end. It is {timeout!r}")


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Raises the queue's own exceptions without the story of the actor that raised them."""
    try:
        yield
    except (Empty, Full) as error:
        plain = Empty if isinstance(error, Empty) else Full
        raise plain(str(getattr(error, "cause", error))) from None


class _QueueActor:
    def __init__(self, maxsize: int) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue(maxsize)

    def qsize(self) -> int:
        return self._queue.qsize()

    def empty(self) -> bool:
        return self._queue.empty()

    def full(self) -> bool:
        return self._queue.full()

    async def put(self, item: Any, timeout: float | None) -> None:
        try:
            await asyncio.wait_for(self._queue.put(item), timeout)
        except asyncio.TimeoutError:
            raise Full(f"the queue still held {self._queue.maxsize} items after {timeout} s") from None

    async def get(self, timeout: float | None) -> Any:
        try:
            return await asyncio.wait_for(self._queue.get(), timeout)
        except asyncio.TimeoutError:
            raise Empty(f"the queue still held nothing after {timeout} s") from None

    def put_nowait(self, item: Any) -> None:
        self.put_nowait_batch([item])

    def put_nowait_batch(self, items: list[Any]) -> None:
        room = self._queue.maxsize - self._queue.qsize()
        if self._queue.maxsize > 0 and len(items) > room:
            raise Full(f"Cannot add {len(items)} items to queue of size {self._queue.qsize()} and maxsize {self._queue.maxsize}.")
        for item in items:
            self._queue.put_nowait(item)

    def get_nowait(self) -> Any:
        return self.get_nowait_batch(1)[0]

    def get_nowait_batch(self, number: int) -> list[Any]:
        if number > self._queue.qsize():
            raise Empty(f"Cannot get {number} items from queue of size {self._queue.qsize()}.")
        return [self._queue.get_nowait() for _ in range(number)]


__getattr__ = _missing.attributes(__name__)
