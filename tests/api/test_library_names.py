"""The names that Ray's libraries need of Oxiray are there: those that `make library-names` found, without their files."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import oxiray
import pytest

NEEDED = Path(__file__).parent.parent / "libraries" / "needed.txt"

#: What errors call the libraries of Ray that nobody has installed.
LIBRARIES = ("oxiray.data", "oxiray.llm", "oxiray.rllib", "oxiray.serve", "oxiray.tune")


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
    except ImportError as error:
        # It needs the libraries themselves, or what they need. Where it is a module of ours that lacks something, it is broken.
        lacking = error.name or "oxiray"
        if lacking.split(".")[0] == "oxiray" and not lacking.startswith(LIBRARIES):
            raise
    path = Path(str(oxiray.__file__)).parent.joinpath(*own.split(".")[1:])
    bound = written((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())
    if name not in bound:
        return False
    origin, called = bound[name]
    return origin.split(".")[0] != "oxiray" or is_there(f"ray{origin.removeprefix('oxiray')}", called)


def written(text: str) -> dict[str, tuple[str, str]]:
    """The names that a module binds when it is imported, and of those that it imports by name from where and as what."""
    found: dict[str, tuple[str, str]] = {}
    waiting = list(ast.parse(text).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found[node.name] = ("", "")
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: (node.module or "", alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.asname or alias.name.split(".")[0]: ("", "") for alias in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {one.id: ("", "") for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
        elif not is_for_types_only(node):
            waiting += [child for child in ast.iter_child_nodes(node) if isinstance(child, (ast.stmt, ast.excepthandler))]
    return found


def is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def test_only_what_a_module_binds_counts_as_written() -> None:
    text = """
import os.path
from oxiray.here import first as second
if TYPE_CHECKING:
    from typing import Any
try:
    third, (fourth, _) = made()
except ImportError:
    fifth: int = 5
sixth: int
def seventh():
    eighth = 8
class Ninth:
    tenth = 10
"""
    found = written(text)
    assert set(found) == {"os", "second", "third", "fourth", "_", "fifth", "seventh", "Ninth"}
    assert found["second"] == ("oxiray.here", "first")


def test_a_module_of_ours_that_does_not_import_is_not_looked_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise ImportError("cannot import name 'gone' from 'oxiray.util'", name="oxiray.util")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(ImportError, match="gone"):
        is_there("ray.util.dask", "ray_dask_get")


@pytest.mark.parametrize("module", needed())
def test_what_the_libraries_need_is_there(module: str) -> None:
    names = needed()[module]
    if not names:
        importlib.import_module(f"oxiray{module.removeprefix('ray')}")
    assert [name for name in names if not is_there(module, name)] == []


def test_the_list_is_a_list() -> None:
    found = needed()
    assert len(found) > 50 and "GcsClient" in found["ray._raylet"] and "get" in found["ray"]
