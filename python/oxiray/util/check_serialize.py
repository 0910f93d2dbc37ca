"""Which part of a value keeps it from travelling to another process."""

from __future__ import annotations

import reprlib
from typing import Any, TextIO

from oxiray import _serialization


class FailureTuple:
    """A part that cannot be serialized: `obj`, the names that lead to it as `path`, and what holds it as `parent`."""

    def __init__(self, obj: Any, path: tuple[str, ...], parent: Any) -> None:
        self.obj = obj
        self.path = path
        self.parent = parent

    def __repr__(self) -> str:
        name = self.path[-1] if self.path else "unknown"
        return f"FailTuple({name} [path={' -> '.join(self.path)}, obj={self.obj!r}, parent={self.parent!r}])"


def inspect_serializability(
    base_obj: Any, name: str | None = None, depth: int = 3, print_file: TextIO | None = None
) -> tuple[bool, set[FailureTuple]]:
    """Whether `base_obj` can be serialized, and its innermost parts that cannot, at most `depth` levels down.

    Prints what it finds, to `print_file` or standard output.
    """
    found = {
        FailureTuple(failure.value, failure.path, failure.parent)
        for failure in _serialization.failing_parts(base_obj, depth, () if name is None else (name,))
    }
    said = name or reprlib.repr(base_obj)
    if not found:
        print(f"{said} can be serialized.", file=print_file)
        return True, found
    print(f"{said} cannot be serialized:", file=print_file)
    for failure in found:
        where = " -> ".join(failure.path) or "the value itself"
        print(f"  {where}: {reprlib.repr(failure.obj)} ({type(failure.obj).__qualname__})", file=print_file)
    print(_serialization.ADVICE, file=print_file)
    return False, found
