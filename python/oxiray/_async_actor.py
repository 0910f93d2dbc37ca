"""Actors with async methods: an event loop in a thread of its own runs their calls, many at once.

Invariants:
1. Calls begin in the order they came; how they interleave afterwards is up to where they wait.
2. At most `concurrency` calls are under way; the others have not begun.
3. A concurrency group has a loop in a thread of its own: a call that blocks holds up its own group alone.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

from oxiray import _generators
from oxiray._async_context import current_call


class EventLoops:
    """The event loops of an actor: one for each concurrency group, and one for calls of no group."""

    def __init__(self, concurrency: int, groups: list[tuple[str, int]]) -> None:
        self._loops = {name: EventLoop(limit) for name, limit in [("", concurrency), *groups]}

    def submit(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        completion: Any,
        identity: tuple[str, str, str],
        group: str,
    ) -> None:
        """Runs a call of the group; `completion` is told how it ended. Called from another thread."""
        self._loops[group].submit(target, args, kwargs, completion, identity)

    def cancel(self, task: str) -> None:
        """Cancels the call of this task, where it is under way. Called from another thread."""
        for loop in self._loops.values():
            loop.cancel(task)


class EventLoop:
    """An event loop in a thread of its own, and the calls that it runs."""

    def __init__(self, concurrency: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._places = asyncio.Semaphore(concurrency)
        self._calls: dict[str, asyncio.Task[None]] = {}
        threading.Thread(target=self._loop.run_forever, name="oxiray-event-loop", daemon=True).start()

    def submit(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        completion: Any,
        identity: tuple[str, str, str],
    ) -> None:
        """Runs a call; `completion` is told how it ended. Called from another thread."""

        def begin() -> None:
            call = self._loop.create_task(self._run(target, args, kwargs or {}, completion, identity))
            # A loop refers to its tasks weakly.
            self._calls[identity[0]] = call

            def end(ended: asyncio.Task[None]) -> None:
                # One that raised what is to be retried is followed by another of the same name.
                if self._calls.get(identity[0]) is ended:
                    del self._calls[identity[0]]
                # One that is cancelled before its first step never runs, and answers nobody.
                if ended.cancelled():
                    completion.failed(asyncio.CancelledError())

            call.add_done_callback(end)

        self._loop.call_soon_threadsafe(begin)

    def cancel(self, task: str) -> None:
        """Cancels the call of this task, where it is under way. Called from another thread."""

        def begin() -> None:
            call = self._calls.get(task)
            if call is not None:
                call.cancel()

        self._loop.call_soon_threadsafe(begin)

    async def _run(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        completion: Any,
        identity: tuple[str, str, str],
    ) -> None:
        current_call.set(identity)
        async with self._places:
            try:
                result = target(*args, **kwargs)
                if inspect.isawaitable(result):
                    result = await result
                if completion.is_stream:
                    result = await _generators.drain(result, completion)
            except BaseException as error:
                completion.failed(error)
            else:
                completion.done(result)
