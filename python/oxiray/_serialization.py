"""Python values as bytes, and back: what the native side cannot do without Python.

Invariants:
1. Plain pickle is used only for exact built-in scalars (the native side decides); everything else goes
   through cloudpickle, which sends by value what the other process could not import.
2. Buffers stay out of band, so that an array is copied once on its way in and never on its way out.
"""

from __future__ import annotations

import io
import os
import pickle
from typing import Any

import cloudpickle

from oxiray import _failures, exceptions


def dumps(value: Any) -> tuple[bytes, list[memoryview]]:
    """The pickle of `value`, and the flat buffers that belong to it.

    Raises `TypeError` naming what cannot be serialized.
    """
    buffers: list[pickle.PickleBuffer] = []
    with io.BytesIO() as file:
        try:
            cloudpickle.Pickler(file, protocol=5, buffer_callback=buffers.append).dump(value)
        except (TypeError, pickle.PicklingError, AttributeError, RecursionError) as error:
            raise TypeError(explain(value, error)) from error
        return file.getvalue(), [_flat(buffer) for buffer in buffers]


def _flat(buffer: pickle.PickleBuffer) -> memoryview:
    return buffer.raw()


def explain(value: Any, error: BaseException) -> str:
    """Says what could not be serialized, which part of it, and what to do."""
    culprit = _culprit(value, 3)
    where = "" if culprit is None or culprit[1] is value else f" Its part `{culprit[0]}` ({culprit[1]!r:.100}) is why."
    return (
        f"Could not serialize {value!r:.200} ({type(value).__module__}.{type(value).__qualname__}): {error}.{where} "
        "Sockets, locks, open files, threads and generators cannot travel: make them inside the task or actor, or "
        "give the class a __reduce__ that leaves them out."
    )


def _culprit(value: Any, depth: int, name: str = "value") -> tuple[str, Any] | None:
    """The innermost part of `value` that cannot be serialized, with its name."""
    try:
        cloudpickle.dumps(value)
    except Exception:
        pass
    else:
        return None
    if depth > 0:
        for part_name, part in _parts(value):
            found = _culprit(part, depth - 1, part_name)
            if found is not None:
                return found
    return name, value


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(repr(key), item) for key, item in list(value.items())[:100]]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [(f"[{index}]", item) for index, item in enumerate(list(value)[:100])]
    closure = getattr(value, "__closure__", None)
    if closure:
        names = value.__code__.co_freevars
        cells = [(name, cell.cell_contents) for name, cell in zip(names, closure, strict=True) if _filled(cell)]
        return cells + _globals(value)
    if hasattr(value, "__code__"):
        return _globals(value)
    return list(getattr(value, "__dict__", {}).items())[:100]


def _globals(function: Any) -> list[tuple[str, Any]]:
    known = getattr(function, "__globals__", {})
    return [(name, known[name]) for name in function.__code__.co_names if name in known]


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


def view(pin: Any, address: int, size: int) -> memoryview:
    """A read-only view of `size` bytes at `address`, which keeps `pin` alive as long as anything sees it."""
    import ctypes

    array = (ctypes.c_char * size).from_address(address)
    # An exporter lives as long as its views do, and this attribute as long as the exporter.
    array._pin = pin
    return memoryview(array).cast("B").toreadonly()


def failure(code: str, text: str, cause: Any) -> BaseException:
    """The exception for what the runtime could not do."""
    if code == "actor_name_taken":
        return exceptions.ActorAlreadyExistsError(text)
    if code == "actor_not_found":
        return ValueError(text)
    return _failures.error_from_runtime(code, text, cause)


def raised(error: BaseException) -> BaseException:
    """The exception to raise for one that was stored as a task's result."""
    if isinstance(error, exceptions.RayTaskError):
        return error.as_instanceof_cause()
    return error


def check_out_of_band() -> None:
    """Raises where references must not be pickled by anybody but the runtime."""
    if os.environ.get("RAY_allow_out_of_band_object_ref_serialization", "1") in ("0", "false"):
        raise exceptions.OufOfBandObjectRefSerializationException(
            "an ObjectRef was pickled outside of a task's arguments or results, where nobody can tell how long its "
            "value is needed, and RAY_allow_out_of_band_object_ref_serialization=0 forbids that: pass the reference "
            "to a task or actor, or pickle its value"
        )
