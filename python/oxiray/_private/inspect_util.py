"""What kind of thing a function is, for compatibility."""

from __future__ import annotations

import inspect
from typing import Any

from oxiray import _missing


def is_function_or_method(obj: Any) -> bool:
    """Whether this is a function or a bound method, of Python or of C."""
    return inspect.isfunction(obj) or inspect.ismethod(obj) or inspect.isbuiltin(obj)


def is_cython(obj: Any) -> bool:
    """Whether this is a function or a method that Cython compiled."""
    return any("cython_function_or_method" in type(part).__name__ for part in (obj, getattr(obj, "__func__", None)))


def is_class_method(f: Any) -> bool:
    """Whether this is a method that is bound to a class."""
    return inspect.isclass(getattr(f, "__self__", None))


def is_static_method(cls: type, f_name: str) -> bool:
    """Whether the class has a static method of this name, or inherits one."""
    return isinstance(inspect.getattr_static(cls, f_name, None), staticmethod)


__all__ = ["is_class_method", "is_cython", "is_function_or_method", "is_static_method"]

__getattr__ = _missing.attributes(__name__)
