"""Calls with num_returns="dynamic": one reference, whose value has references to all that the call yielded.

Nothing here imports asyncio, which takes 20 ms.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from oxiray import _core
from oxiray._core import ObjectRef


class DynamicObjectRefGenerator:
    """References to all that a call with num_returns="dynamic" yielded; iterating over it again begins anew."""

    def __init__(self, refs: list[ObjectRef[Any]]) -> None:
        self._refs = refs

    def __iter__(self) -> Iterator[ObjectRef[Any]]:
        return iter(self._refs)

    def __len__(self) -> int:
        return len(self._refs)


#: The method of every actor that calls another one, named first among the arguments, with num_returns="dynamic".
GATHER = "__oxiray_gather__"
#: The method of every actor that calls another one, named first, whose result stays with the actor by a transport, named second.
HOLD = "__oxiray_hold__"


class Gathering:
    """A function with num_returns="dynamic", as workers call it."""

    def __init__(self, function: Callable[..., Any], *, is_retried: bool = False) -> None:
        self._function = function
        self._is_retried = is_retried
        functools.update_wrapper(self, function)
        self.__dict__.pop("__wrapped__")

    def __call__(self, *args: Any, **kwargs: Any) -> DynamicObjectRefGenerator:
        """What the function yields, each in an object of its own; an error that ends it is the last of them."""
        from oxiray._generators import iterate

        references: list[ObjectRef[Any]] = []
        try:
            references.extend(_core.put(item) for item in iterate(self._function(*args, **kwargs)))
        except Exception as error:
            if self._is_retried:
                raise
            references.append(_core.put_raised(error))
        return DynamicObjectRefGenerator(references)
