"""Errors that are two things at once, and errors as bytes.

Purpose: `except ValueError` around `get` must catch a `ValueError` raised in
another process, and so must `except RayTaskError`: the class raised is both.
"""

from __future__ import annotations

import builtins
import functools
import logging
import pickle
from collections.abc import Callable
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

Failure = TypeVar("Failure", bound=BaseException)


def make(base: type[Failure], cause: BaseException) -> Failure:
    """An instance of `base` and of the class of `cause`; raises where there can be none."""
    pair: tuple[Any, Any] = (base, type(cause))
    build: Callable[[BaseException], Failure] = dual_class(*pair)
    return build(cause)


@functools.lru_cache(maxsize=1024)
def dual_class(base: type[Failure], cause_class: type[BaseException]) -> Any:
    """The class named `Base(Cause)` that inherits both; made once per pair."""

    def initialise(self: Any, cause: BaseException) -> None:
        self.cause = cause
        self.args = (cause,)

    name = f"{base.__name__}({cause_class.__name__})"
    body: dict[str, Any] = {
        # A read-only one of the cause's class must not hide what `initialise` sets.
        "args": BaseException.args,
        "__module__": base.__module__,
        "__qualname__": name,
        "__doc__": f"A `{cause_class.__qualname__}` raised inside a task or an actor.",
        "__init__": initialise,
        "__getattr__": _ask_cause,
        "__str__": base.__str__,
        "__reduce__": base.__reduce__,
        "_dual_of": cause_class,
    }
    group: type[BaseException] | None = getattr(builtins, "BaseExceptionGroup", None)
    if group is not None and issubclass(cause_class, group):
        # A group takes its members, and checks them, in __new__ only.
        body["__new__"] = lambda cls, cause: cause_class.__new__(cls, cause.message, cause.exceptions)
    return type(name, (base, cause_class), body)


def _ask_cause(self: Any, name: str) -> Any:
    cause = self.__dict__.get("cause")
    if cause is None or name.startswith("__"):
        raise AttributeError(name)
    return getattr(cause, name)


def dump(error: BaseException) -> bytes:
    """The error as bytes; by value where its class exists in the user's script only."""
    if type(error).__module__ != "__main__":
        try:
            return pickle.dumps(error, protocol=5)
        except Exception:
            logger.debug("plain pickle refused a %s, trying cloudpickle", type(error), exc_info=True)
    from oxiray import _pickling

    return _pickling.dumps(error)


def load(data: bytes) -> BaseException | None:
    """The error written by `dump`, or None where this process cannot rebuild it."""
    try:
        error = pickle.loads(data)
    except Exception:
        logger.debug("an error of another process cannot be rebuilt here", exc_info=True)
        return None
    return error if isinstance(error, BaseException) else None
