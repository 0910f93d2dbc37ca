"""How objects of a class are to be serialized in this process, where their own way does not do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle


def register_serializer(
    cls: type, *, serializer: Callable[[Any], Any], deserializer: Callable[[Any], Any]
) -> None:
    """Lets objects of exactly `cls` travel as `serializer(object)`, to become `deserializer(that)` where they arrive.

    For this process only: a task that returns such objects registers it too.
    """
    if not isinstance(cls, type):
        raise TypeError(f"register_serializer() takes a class, and was given {cls!r}")
    if not callable(serializer) or not callable(deserializer):
        raise TypeError(f"a serializer and a deserializer are functions, and one given for {cls.__qualname__} is not")
    cloudpickle.CloudPickler.dispatch_table[cls] = lambda value: (deserializer, (serializer(value),))


class StandaloneSerializationContext:
    """Registers how objects are to be serialized, for libraries that do so before anything is started."""

    def _register_cloudpickle_reducer(self, cls: type, reducer: Callable[[Any], Any]) -> None:
        cloudpickle.CloudPickler.dispatch_table[cls] = reducer

    def _unregister_cloudpickle_reducer(self, cls: type) -> None:
        deregister_serializer(cls)

    def _register_cloudpickle_serializer(
        self, cls: type, custom_serializer: Callable[[Any], Any], custom_deserializer: Callable[[Any], Any]
    ) -> None:
        register_serializer(cls, serializer=custom_serializer, deserializer=custom_deserializer)


def deregister_serializer(cls: type) -> None:
    """Takes back what `register_serializer` did; does nothing where it did nothing."""
    # The first of the chained tables is cloudpickle's own; the second is everybody's.
    cloudpickle.CloudPickler.dispatch_table.maps[0].pop(cls, None)
