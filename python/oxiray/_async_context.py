"""Async actors, as far as others need to know of them: nothing here imports asyncio, which takes 20 ms."""

from __future__ import annotations

import inspect
from contextvars import ContextVar

#: The running call of an async actor: its task's id, its name, its function's name.
current_call: ContextVar[tuple[str, str, str] | None] = ContextVar("oxiray_call", default=None)


def has_async_methods(cls: type) -> bool:
    """Whether a class is run on an event loop: any of its methods is a coroutine function or an async generator."""
    functions = (function for _, function in inspect.getmembers(cls, inspect.isfunction))
    return any(inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function) for function in functions)
