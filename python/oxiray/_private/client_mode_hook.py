"""What libraries wrap in case that Ray Client is in use, which it never is here. For compatibility."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from oxiray import _missing

Function = TypeVar("Function", bound=Callable[..., Any])

#: Whether functions go through Ray Client.
is_client_mode_enabled = False
is_client_mode_enabled_by_default = False


def client_mode_hook(func: Function) -> Function:
    """The function itself."""
    return func


def client_mode_should_convert(**_: Any) -> bool:
    """Whether functions and actors go through Ray Client: never."""
    return False


@contextlib.contextmanager
def disable_client_hook() -> Iterator[None]:
    """Changes nothing within the block: Ray Client is not in use."""
    yield


@contextlib.contextmanager
def enable_client_mode() -> Iterator[None]:
    """Raises `NotImplementedError`."""
    raise NotImplementedError(_missing.advice("util.client"))
    yield


__all__ = [
    "client_mode_hook",
    "client_mode_should_convert",
    "disable_client_hook",
    "enable_client_mode",
    "is_client_mode_enabled",
    "is_client_mode_enabled_by_default",
]

__getattr__ = _missing.attributes(__name__)
