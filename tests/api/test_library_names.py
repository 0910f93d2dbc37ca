"""The names that Ray's libraries need of Oxiray are there: those that `make library-names` found, without their files."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import oxiray
import pytest

NEEDED = Path(__file__).parent.parent / "libraries" / "needed.txt"


def needed() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in NEEDED.read_text().splitlines():
        if line.startswith(" "):
            found[last] += line.split()
        elif not line.startswith("#"):
            found[last := line] = []
    return found


def is_there(module: str, name: str) -> bool:
    own = f"oxiray{module.removeprefix('ray')}"
    try:
        return hasattr(importlib.import_module(own), name)
    except ImportError:
        # It needs the libraries themselves, or what they need.
        path = Path(str(oxiray.__file__)).parent.joinpath(*own.split(".")[1:])
        return name in written(path / "__init__.py" if path.is_dir() else path.with_suffix(".py"))


def written(file: Path) -> set[str]:
    """The names that a file defines, sets or imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


@pytest.mark.parametrize("module", needed())
def test_what_the_libraries_need_is_there(module: str) -> None:
    names = needed()[module]
    if not names:
        importlib.import_module(f"oxiray{module.removeprefix('ray')}")
    assert [name for name in names if not is_there(module, name)] == []


def test_the_list_is_a_list() -> None:
    found = needed()
    assert len(found) > 50 and "GcsClient" in found["ray._raylet"] and "get" in found["ray"]
