"""Which modules a training function will import, as its code says, so that processes are forked with them.

Only libraries that are known to be slow to import and safe to fork with: what a template cannot be forked with costs
its time for nothing.
"""

from __future__ import annotations

import dis
import sys
from types import CodeType, ModuleType
from typing import Any

#: In the order in which they are imported.
FORKABLE = ("numpy", "torch")


def learned(function: Any) -> list[str]:
    """The forkable modules that a function names: in its own imports, or through its module's names."""
    roots: set[str] = set()
    _visit(function, roots, set())
    return [name for name in FORKABLE if name in roots]


def _visit(function: Any, roots: set[str], seen: set[int]) -> None:
    function = getattr(function, "func", function)
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None or id(code) in seen:
        return
    seen.add(id(code))
    names = _names(code, roots)
    known = getattr(function, "__globals__", {})
    held = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    for value in [*(known[name] for name in names if name in known), *held]:
        if isinstance(value, ModuleType):
            roots.add(value.__name__.partition(".")[0])
        elif hasattr(value, "__code__") and value.__globals__ is known:
            _visit(value, roots, seen)
        else:
            owner = getattr(value, "__module__", None)
            if isinstance(owner, str) and owner in sys.modules:
                roots.add(owner.partition(".")[0])


def _names(code: CodeType, roots: set[str]) -> set[str]:
    names = set(code.co_names)
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME" and isinstance(instruction.argval, str):
            roots.add(instruction.argval.partition(".")[0])
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names(constant, roots)
    return names


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
