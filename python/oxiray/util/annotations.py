"""Marks on functions and classes that say how stable they are.

Purpose: libraries written for Ray import these decorators; here they mark, and
`Deprecated` warns, and nothing else.
"""

from __future__ import annotations

import enum
import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

Annotated = TypeVar("Annotated")


class AnnotationType(enum.Enum):
    """How stable something is."""

    PUBLIC_API = "PublicAPI"
    DEVELOPER_API = "DeveloperAPI"
    DEPRECATED = "Deprecated"
    UNKNOWN = "Unknown"


class RayDeprecationWarning(DeprecationWarning):
    """Something still works, but will not for ever."""


def PublicAPI(*args: Any, **options: Any) -> Any:  # noqa: N802
    """Mark as stable; `stability` may be "stable", "beta" or "alpha"."""
    _check_options("PublicAPI", options, {"stability", "api_group"})
    stability = options.get("stability", "stable")
    if stability not in ("stable", "beta", "alpha"):
        raise ValueError(f"the stability of a public API is 'stable', 'beta' or 'alpha', not {stability!r}")
    return _decorate(args, lambda target: _mark(target, AnnotationType.PUBLIC_API, options.get("api_group", "Others")))


def DeveloperAPI(*args: Any, **options: Any) -> Any:  # noqa: N802
    """Mark as meant for authors of libraries."""
    _check_options("DeveloperAPI", options, {"stability", "api_group"})
    group = options.get("api_group", "Others")
    return _decorate(args, lambda target: _mark(target, AnnotationType.DEVELOPER_API, group))


def Deprecated(*args: Any, **options: Any) -> Any:  # noqa: N802
    """Mark as deprecated; with `warning=True`, calling it warns with `message`."""
    _check_options("Deprecated", options, {"message", "warning"})

    def apply(target: Any) -> Any:
        if options.get("warning"):
            target = _warn_on_use(target, options.get("message"))
        return _mark(target, AnnotationType.DEPRECATED, "Others")

    return _decorate(args, apply)


def _check_options(name: str, options: dict[str, Any], known: set[str]) -> None:
    unknown = sorted(set(options) - known)
    if unknown:
        raise ValueError(f"{name} was given {unknown[0]!r}, but takes only {sorted(known)}")


def _decorate(args: tuple[Any, ...], apply: Callable[[Any], Any]) -> Any:
    if len(args) == 1 and callable(args[0]):
        return apply(args[0])
    return apply


def _mark(target: Annotated, kind: AnnotationType, group: str) -> Annotated:
    marked: Any = target
    marked._annotated = getattr(target, "__name__", None)
    marked._annotated_type = kind
    marked._annotated_api_group = group
    return target


def _mark_annotated(
    obj: Annotated, type: AnnotationType = AnnotationType.UNKNOWN, api_group: str = "Others"
) -> Annotated:
    """Marks as the decorators do. Libraries that have marks of their own call it."""
    return _mark(obj, type, api_group)


def _warn_on_use(target: Any, message: str | None) -> Any:
    text = f"`{getattr(target, '__qualname__', target)}` is deprecated. {message or ''}".rstrip()

    def warn() -> None:
        warnings.warn(text, RayDeprecationWarning, stacklevel=3)

    if isinstance(target, type):
        original: Any = target.__init__  # type: ignore[misc]

        @functools.wraps(original)
        def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
            warn()
            original(self, *args, **kwargs)

        target.__init__ = initialise  # type: ignore[misc]
        return target

    @functools.wraps(target)
    def call(*args: Any, **kwargs: Any) -> Any:
        warn()
        return target(*args, **kwargs)

    return call
