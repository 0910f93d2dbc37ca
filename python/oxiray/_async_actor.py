"""Actors with async methods: an event loop in a thread of its own runs their calls, many at once.

Invariants:
1. Calls begin in the order they came; how they interleave afterwards is up to where they wait.
2. At most `concurrency` calls are under way; the others have not begun.
3. A concurrency group has a loop in a thread of its own: a call that blocks holds up its own group alone.
4. The constructor runs in the loop of calls of no group, so that it can make what belongs to a running loop.
5. When a call ends the actor, those that have begun go on, and those that have not end as it did.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from oxiray import _async_context, _generators
from oxiray._async_context import current_call


@dataclass(slots=True)
class _Call:
    """A call, and whom to tell how it ended."""

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] | None
    completion: Any
    #: Its task, and the names that it goes by.
    identity: tuple[str, str, str]


@dataclass(slots=True)
class _Ending:
    """What ended the actor, once something did; all its loops share this."""

    error: SystemExit | None = None


def _new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed, as in Ray: it is faster, and sends what is written to a socket at once."""
    try:
        uvloop: Any = importlib.import_module("uvloop")
    except ImportError:
        uvloop = asyncio
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class EventLoops:
    """The event loops of an actor: one for each concurrency group, and one for calls of no group."""

    def __init__(self) -> None:
        self._ending = _Ending()
        self._loops = {"": EventLoop(self._ending)}
        _async_context.serves()

    def run(self, function: Callable[[], Any]) -> Any:
        """Runs `function`, plain or async, in the loop of calls of no group; returns or raises what it does.

        Called from another thread.
        """
        return self._loops[""].run(function)

    def divide(self, concurrency: int, groups: list[tuple[str, int]]) -> None:
        """Says how many calls may be under way: of no group, and of each group."""
        self._loops |= {name: EventLoop(self._ending) for name, _ in groups}
        for name, limit in [("", concurrency), *groups]:
            self._loops[name].limit(limit)

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
        self._loops[group].submit(_Call(target, args, kwargs, completion, identity))

    def loops(self) -> list[asyncio.AbstractEventLoop]:
        """The loops themselves."""
        return [loop._loop for loop in self._loops.values()]

    def cancel(self, task: str) -> None:
        """Cancels the call of this task, where it is under way. Called from another thread."""
        for loop in self._loops.values():
            loop.cancel(task)


class EventLoop:
    """An event loop in a thread of its own, and the calls that it runs."""

    def __init__(self, ending: _Ending) -> None:
        self._ending = ending
        self._loop = _new_event_loop()
        self._places = asyncio.Semaphore(1)
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._arrived: deque[Callable[[], None]] = deque()
        self._is_woken = False
        threading.Thread(target=self._loop.run_forever, name="oxiray-event-loop", daemon=True).start()

    def run(self, function: Callable[[], Any]) -> Any:
        """Runs `function`, plain or async, in the loop; returns or raises what it does. Called from another thread."""
        future: Future[Any] = Future()
        # A loop refers to its tasks weakly.
        begun: list[asyncio.Task[None]] = []

        async def call() -> None:
            # Caught here whatever it is: a SystemExit would end the loop.
            try:
                result = function()
                future.set_result(await result if inspect.isawaitable(result) else result)
            except BaseException as error:
                future.set_exception(error)

        self._soon(lambda: begun.append(self._loop.create_task(call())))
        return future.result()

    def limit(self, concurrency: int) -> None:
        """Says how many calls may be under way, before the first comes."""
        self._places = asyncio.Semaphore(concurrency)

    def _soon(self, step: Callable[[], None]) -> None:
        """Has the loop take this step, after those before it. Waking the loop costs a system call: once for many."""
        self._arrived.append(step)
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._take_steps)

    def _take_steps(self) -> None:
        # Before they are counted: one that arrives later wakes the loop again.
        self._is_woken = False
        for _ in range(len(self._arrived)):
            self._arrived.popleft()()

    def submit(self, call: _Call) -> None:
        """Runs a call. Called from another thread."""
        name = call.identity[0]

        def begin() -> None:
            task = self._loop.create_task(self._run(call))
            # A loop refers to its tasks weakly.
            self._calls[name] = task

            def end(ended: asyncio.Task[None]) -> None:
                # One that raised what is to be retried is followed by another of the same name.
                if self._calls.get(name) is ended:
                    del self._calls[name]
                # One that is cancelled before its first step never runs, and answers nobody.
                if ended.cancelled():
                    call.completion.failed(asyncio.CancelledError())

            task.add_done_callback(end)

        self._soon(begin)

    def cancel(self, task: str) -> None:
        """Cancels the call of this task, where it is under way. Called from another thread."""

        def begin() -> None:
            call = self._calls.get(task)
            if call is not None:
                call.cancel()

        self._soon(begin)

    async def _run(self, call: _Call) -> None:
        current_call.set(call.identity)
        completion = call.completion
        async with self._places:
            if self._ending.error is not None:
                completion.failed(self._ending.error)
                return
            try:
                result = call.target(*call.args, **(call.kwargs or {}))
                # Other things that can be awaited, such as references, are what a plain method returns.
                if inspect.iscoroutine(result):
                    result = await result
                if completion.is_stream:
                    result = await _generators.drain(result, completion)
            except BaseException as error:
                if isinstance(error, SystemExit):
                    self._ending.error = error
                completion.failed(error)
            else:
                completion.done(result)
