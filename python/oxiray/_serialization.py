"""Python values as bytes, and back: what the native side cannot do without Python.

Invariants:
1. Values of built-in types alone never come here: the native side writes them. Everything else goes through
   cloudpickle, which sends by value what the other process could not import.
2. Buffers stay out of band, so that an array is copied once on its way in and never on its way out.
"""

from __future__ import annotations

import logging
import pickle
import reprlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from oxiray import _failures, _pickling, _switches, exceptions

logger = logging.getLogger("oxiray")
_warned_of_out_of_band = False

ADVICE = (
    "Sockets, locks, open files, threads and generators cannot travel: make them inside the task or actor, or "
    "give the class a __reduce__ that leaves them out."
)


class _Parts(list[Any]):
    """A file for pickle that keeps what is written as it is: large `bytes` are not copied."""

    write = list.append


def dumps(value: Any) -> tuple[list[Any], list[memoryview]]:
    """The parts of the pickle of `value`, and the flat buffers that belong to it.

    Raises `TypeError` naming what cannot be serialized.
    """
    parts = _Parts()
    buffers: list[pickle.PickleBuffer] = []
    try:
        _pickling.Pickler(parts, protocol=5, buffer_callback=buffers.append).dump(value)
    except (TypeError, pickle.PicklingError, AttributeError, RecursionError) as error:
        raise TypeError(explain(value, error)) from error
    return parts, [_flat(buffer) for buffer in buffers]


def refused(subject: str, value: Any, reason: BaseException) -> TypeError:
    """The error for `value`, which cannot be serialized for this reason; `subject` says what it was to be."""
    import io

    from oxiray.util.check_serialize import inspect_serializability

    report = io.StringIO()
    inspect_serializability(value, print_file=report)
    return TypeError(f"Could not serialize {subject}:\n{report.getvalue().rstrip()}\n{reason}")


def of_arguments(error: TypeError, args: tuple[Any, ...], kwargs: dict[str, Any], callee: str) -> TypeError:
    """The error of a call: of the first argument that cannot be serialized, where that is why, else `error` as it is."""
    # What is wrong with the number of arguments has no cause.
    if error.__cause__ is None:
        return error
    for value in (*args, *kwargs.values()):
        if next(failing_parts(value, 0), None) is not None:
            return refused(f"the argument {shown(value)} for a task or actor {callee}", value, error.__cause__)
    return error


def unreadable(error: Exception) -> exceptions.RayError:
    """The error for a value that cannot be deserialized here, which raised `error`.

    One of the runtime's own says what happened: what a part of the value was to be fetched from is gone.
    """
    if isinstance(error, exceptions.RayError) and not isinstance(error, exceptions.RaySystemError):
        return error
    if isinstance(error, exceptions.RayDirectTransportError):
        return error
    return exceptions.RaySystemError(error, _failures.traceback_text(error))


def name_of(target: Any) -> str:
    """The function or class as errors name it: with its module, or the script that it is in."""
    module = target.__module__
    if module == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        module = Path(file).stem if file else module
    return f"{module}.{target.__qualname__}"


def _flat(buffer: pickle.PickleBuffer) -> memoryview:
    return buffer.raw()


class FailingPart(NamedTuple):
    """A part of a value that cannot be serialized, though none of its own parts is known to be why."""

    value: Any
    #: The names that lead to it.
    path: tuple[str, ...]
    #: What holds it; None for the value itself.
    parent: Any


def explain(value: Any, error: BaseException) -> str:
    """Says what could not be serialized, which part of it, and what to do."""
    culprit = next(failing_parts(value, 3), None)
    where = ""
    if culprit is not None and culprit.path:
        where = f" Its part `{culprit.path[-1]}` ({shown(culprit.value)}) is why."
    return (
        f"Could not serialize {shown(value)} ({type(value).__module__}.{type(value).__qualname__}): {error}.{where} "
        f"{ADVICE}"
    )


def shown(value: Any) -> str:
    """`repr(value)`, cut short, where it has one."""
    try:
        return reprlib.repr(value)
    except Exception:
        return f"an object of {type(value).__qualname__}"


def failing_parts(value: Any, depth: int, path: tuple[str, ...] = (), parent: Any = None) -> Iterator[FailingPart]:
    """The innermost parts of `value` that cannot be serialized, at most `depth` levels down; itself where none is."""
    try:
        _pickling.dumps(value)
    except Exception:
        found = False
        for name, part in _parts(value) if depth > 0 else []:
            for failing in failing_parts(part, depth - 1, (*path, name), value):
                found = True
                yield failing
        if not found:
            yield FailingPart(value, path, parent)


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(shown(key), item) for key, item in list(value.items())[:100]]
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


def private_view(array: Any, limit: int) -> memoryview | None:
    """Memory of this process's own with the bytes of a one-dimensional stored array, to which it may write.

    None where the array is not in the store, where that takes a copy, or where more than `limit` bytes of stored objects would
    stay pinned for such memory.
    """
    import ctypes

    owner = array
    while hasattr(owner, "base"):
        owner = owner.base
    pin = getattr(getattr(owner, "obj", None), "_pin", None)
    private = pin and pin.private(array.ctypes.data, array.nbytes, limit)
    if private is None:
        return None
    memory = (ctypes.c_char * len(private)).from_address(private.address)
    memory._private = private
    return memoryview(memory).cast("B")


def failure(
    code: str, text: str, cause: Any, object_id: str | None = None, known: dict[str, Any] | None = None
) -> BaseException:
    """The exception for what the runtime could not do; `object_id` is the object that cannot be had for it.

    `known` is what is known of the actor whose death it is.
    """
    if code == "actor_name_taken":
        return exceptions.ActorAlreadyExistsError(text)
    if code == "state":
        from oxiray.util.state.exception import RayStateApiException

        return RayStateApiException(text)
    if code in ("actor_not_found", "invalid"):
        return ValueError(text)
    if isinstance(cause, dict):
        from oxiray import rust

        cause = rust.error_of(cause)
    details = {"actor_id": _actor_of(object_id), **(known or {})}
    return _failures.error_from_runtime(code, text, cause, object_id=object_id, **details)


def _actor_of(object_id: str | None) -> str | None:
    """The actor whose call made an object: ids nest, and those outside of actors begin with a filler."""
    actor_id = (object_id or "")[16:48]
    return None if not actor_id or actor_id.startswith("ff" * 12) else actor_id


def raised(error: BaseException | dict[str, Any]) -> BaseException:
    """The exception to raise for one that was stored as a task's result, by Python or another language."""
    if isinstance(error, dict):
        from oxiray import rust

        error = rust.error_of(error)
    if isinstance(error, exceptions.RayTaskError):
        return error.as_instanceof_cause()
    return error


def check_out_of_band() -> None:
    """Raises where references must not be pickled by anybody but the runtime, and warns once where they may."""
    if not _switches.is_on("allow_out_of_band_object_ref_serialization", default=True):
        raise exceptions.OufOfBandObjectRefSerializationException(
            "an ObjectRef was pickled outside of a task's arguments or results, where Oxiray cannot know how long its "
            "value is needed, and RAY_allow_out_of_band_object_ref_serialization=0 forbids that: pass the reference "
            "to a task or actor, or pickle its value"
        )
    global _warned_of_out_of_band
    if not _warned_of_out_of_band:
        _warned_of_out_of_band = True
        logger.warning(
            "an ObjectRef was pickled outside of a task's arguments or results (pickle.dumps, or a function or class "
            "that refers to it by a global name): Oxiray cannot know how long its value is needed, so it is kept until this "
            "process ends. Pass the reference to a task or actor instead; "
            "RAY_allow_out_of_band_object_ref_serialization=0 makes this an error. This is shown once per process"
        )
