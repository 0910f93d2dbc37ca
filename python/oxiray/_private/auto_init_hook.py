"""Connecting on first use, as libraries ask for it. For compatibility."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from oxiray import _missing, _session


def auto_init_ray() -> None:
    """Connects where that was not done yet."""
    _session.ensure()


def wrap_auto_init(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which connects first where that was not done yet."""

    @functools.wraps(fn)
    def connected(*args: Any, **kwargs: Any) -> Any:
        _session.ensure()
        return fn(*args, **kwargs)

    return connected


__all__ = ["auto_init_ray", "wrap_auto_init"]

__getattr__ = _missing.attributes(__name__)
