"""Async actors, as far as others need to know of them: nothing here imports asyncio, which takes 20 ms."""

from __future__ import annotations

import inspect
import logging
import sys
from contextvars import ContextVar
from types import FunctionType

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
    # Where a library has set that Ray has warned of it, in the module that has this name in Ray, nobody needs to be.
    if getattr(sys.modules.get("oxiray._private.worker"), "blocking_get_inside_async_warned", False):
        return
    logging.getLogger("ray").warning(
        "Using blocking ray.get inside async actor. This blocks the event loop. "
        "No other call of the actor goes on until get() returns. "
        "Write `await reference`, or `await asyncio.gather(*references)` for several."
    )


def has_async_methods(cls: type) -> bool:
    """Whether a class is run on an event loop: any of its methods is a coroutine function or an async generator."""
    seen: set[str] = set()
    for base in cls.__mro__[:-1]:
        for name, member in base.__dict__.items():
            if name in seen:
                continue
            # What a class has hides what its bases have of that name.
            seen.add(name)
            function = member.__func__ if isinstance(member, staticmethod) else member
            if isinstance(function, FunctionType) and _is_async(function):
                return True
    return False


def _is_async(function: FunctionType) -> bool:
    if function.__code__.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return True
    # One may be marked as such.
    return bool(function.__dict__) and inspect.iscoroutinefunction(function)
