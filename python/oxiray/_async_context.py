"""Async actors, as far as others need to know of them: nothing here imports asyncio, which takes 20 ms."""

from __future__ import annotations

import inspect
import logging
from contextvars import ContextVar

#: The running call of an async actor: its task's id, its name, its function's name.
current_call: ContextVar[tuple[str, str, str] | None] = ContextVar("oxiray_call", default=None)

#: Whether calls run in event loops here, and nobody was warned yet that get() blocks them.
is_to_warn = False


def serves() -> None:
    """From here on calls run in event loops in this process."""
    global is_to_warn
    is_to_warn = True


def warn_of_blocking() -> None:
    """Warns, once in a process, of a get() that blocks the event loop of an actor."""
    global is_to_warn
    is_to_warn = False
    logging.getLogger("ray").warning(
        "Using blocking ray.get inside async actor. This blocks the event loop. "
        "No other call of the actor goes on until get() returns. "
        "Write `await reference`, or `await asyncio.gather(*references)` for several."
    )


def has_async_methods(cls: type) -> bool:
    """Whether a class is run on an event loop: any of its methods is a coroutine function or an async generator."""
    functions = (function for _, function in inspect.getmembers(cls, inspect.isfunction))
    return any(inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function) for function in functions)
