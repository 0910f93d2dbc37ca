"""What is async of a class or a function, for compatibility."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from oxiray import _missing
from oxiray._async_context import has_async_methods


def is_async_func(func: Any) -> bool:
    """Whether a function is a coroutine function or an async generator."""
    return inspect.iscoroutinefunction(func) or inspect.isasyncgenfunction(func)


def sync_to_async(func: Callable[..., Any]) -> Callable[..., Any]:
    """The function as an async one; itself where it is that, or a generator."""
    if is_async_func(func) or inspect.isgeneratorfunction(func):
        return func

    async def call(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return call


__all__ = ["has_async_methods", "is_async_func", "sync_to_async"]

__getattr__ = _missing.attributes(__name__)
