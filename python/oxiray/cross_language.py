"""Functions and classes of Java and C++, which Oxiray does not run: the names exist, and raise when they are called.

For Rust, see `oxiray.rust`.
"""

from __future__ import annotations

from typing import NoReturn

from oxiray import _missing


def java_function(class_name: str, function_name: str) -> NoReturn:
    """Raises `NotImplementedError`."""
    raise NotImplementedError(_missing.advice("java_function"))


def java_actor_class(class_name: str) -> NoReturn:
    """Raises `NotImplementedError`."""
    raise NotImplementedError(_missing.advice("java_actor_class"))


def cpp_function(function_name: str) -> NoReturn:
    """Raises `NotImplementedError`."""
    raise NotImplementedError(_missing.advice("cpp_function"))


def cpp_actor_class(create_function_name: str, class_name: str) -> NoReturn:
    """Raises `NotImplementedError`."""
    raise NotImplementedError(_missing.advice("cross_language"))


__all__ = ["cpp_actor_class", "cpp_function", "java_actor_class", "java_function"]

__getattr__ = _missing.attributes(__name__)
