"""Says which names of Ray a program uses, and whether Oxiray has them: `python -m oxiray.compat PATH...`.

Purpose: to know before moving a program what will be missing, and what to do instead. A path is a file, a folder, or
the name of an installed package. Programs are read, never run. The exit status is 0 where everything is there.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from oxiray import _missing
from oxiray._without_effect import OPTIONS

#: What a program may write that is no name of a module, and why it is not there.
_MISSING = {
    'num_returns="dynamic"': "is deprecated in Ray: leave num_returns out, and read the references that the call yields",
    ".experimental_compile()": "makes compiled graphs, which Ray plans to remove: call execute(), or the actors' methods",
}
_ROOTS = ("ray", "oxiray")
#: Libraries whose names are there to be imported, and refuse to be used.
_REFUSING = ("data",)


@dataclass
class Name:
    """A name of Ray that is used: whether it is there, else why not, and where it is used."""

    name: str
    status: str
    advice: str = ""
    uses: dict[str, list[int]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How often it is used."""
        return sum(map(len, self.uses.values()))


class _Reader(ast.NodeVisitor):
    """Collects `(dotted name, line)` of everything under Ray that a file names."""

    def __init__(self) -> None:
        self.bound: dict[str, str] = {}
        self.found: list[tuple[str, int]] = []

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            root, _, rest = alias.name.partition(".")
            if root in _ROOTS:
                self.bound[alias.asname or root] = alias.name if alias.asname else root
                self.found.append((_under_ray(alias.name), node.lineno))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level or module.partition(".")[0] not in _ROOTS:
            return
        for alias in node.names:
            name = module if alias.name == "*" else f"{module}.{alias.name}"
            self.found.append((_under_ray(name), node.lineno))
            self.bound[alias.asname or alias.name] = name

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self._dotted(node)
        if name is None:
            self.generic_visit(node)
        else:
            self.found.append((name, node.lineno))

    def visit_Call(self, node: ast.Call) -> None:
        function = (self._dotted(node.func) or "").partition(".")[2].rpartition(".")[2]
        for keyword in node.keywords if self.bound else []:
            given = keyword.value.value if isinstance(keyword.value, ast.Constant) else ...
            defaults, _ = OPTIONS.get(function, {}).get(str(keyword.arg), ((given,), ""))
            if given not in defaults:
                self.found.append((f"ray.{function}({keyword.arg}=)", node.lineno))
            if keyword.arg == "num_returns" and given == "dynamic":
                self.found.append(('num_returns="dynamic"', node.lineno))
        if self.bound and isinstance(node.func, ast.Attribute) and node.func.attr == "experimental_compile":
            self.found.append((".experimental_compile()", node.lineno))
        self.generic_visit(node)

    def _dotted(self, node: ast.AST) -> str | None:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.bound:
            return None
        return _under_ray(".".join([self.bound[node.id], *reversed(parts)]))


def _under_ray(name: str) -> str:
    root, dot, rest = name.partition(".")
    return f"ray{dot}{rest}"


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError):
        return None


def check(name: str) -> Name:
    """Whether `ray.x.y` is there. Of a class's attributes, and of what is no module, only the first part is looked at."""
    if name in _MISSING:
        return Name(name, "missing", _MISSING[name])
    if name.endswith("=)"):
        function, _, keyword = name.removeprefix("ray.").removesuffix("=)").partition("(")
        return Name(name, "partial", f"is accepted without effect: {OPTIONS[function][keyword][1]}")
    parts = name.split(".")[1:]
    if parts and parts[0] in _REFUSING:
        return Name(".".join(["ray", *parts[:2]]), "missing", _missing.advice(".".join(parts[:2])))
    here: Any = importlib.import_module("oxiray")
    for depth, part in enumerate(parts, 1):
        dotted = ".".join(parts[:depth])
        if not isinstance(here, ModuleType):
            break
        try:
            following = getattr(here, part, None)
        except ImportError as error:
            return Name(f"ray.{dotted}", "partial", f"is there, and needs what is not installed: {error}")
        if following is None and not hasattr(here, part):
            following = _module(f"oxiray.{dotted}") or (_module("cloudpickle") if part == "cloudpickle" else None)
        if following is None and not hasattr(here, part):
            return Name(f"ray.{dotted}", "missing", _missing.advice(dotted))
        here = following
        if not isinstance(here, ModuleType):
            return Name(f"ray.{dotted}", "there")
    return Name(name, "there")


def files_of(path: str) -> Iterator[Path]:
    """The Python files of a file, a folder, or an installed package. Raises `FileNotFoundError` where it is none."""
    given = Path(path)
    if given.is_file():
        yield given
        return
    if not given.is_dir():
        try:
            spec = importlib.util.find_spec(path)
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            raise FileNotFoundError(f"{path} is no file, no folder and no installed package")
        if not spec.submodule_search_locations:
            yield Path(str(spec.origin))
            return
        given = Path(next(iter(spec.submodule_search_locations)))
    yield from sorted(given.rglob("*.py"))


def read(paths: list[str]) -> tuple[list[Name], list[str]]:
    """The names that are used, missing ones first, and the files that could not be read."""
    names: dict[str, Name] = {}
    checked: dict[str, Name] = {}
    unread: list[str] = []
    for path in paths:
        for file in files_of(path):
            reader = _Reader()
            try:
                reader.visit(ast.parse(file.read_bytes(), str(file)))
            except (OSError, SyntaxError, ValueError) as error:
                unread.append(f"{file}: {error}")
                continue
            for used, line in reader.found:
                if used not in checked:
                    checked[used] = check(used)
                verdict = checked[used]
                known = names.setdefault(verdict.name, verdict)
                known.uses.setdefault(str(file), []).append(line)
    order = {"missing": 0, "partial": 1, "there": 2}
    return sorted(names.values(), key=lambda name: (order[name.status], -name.count, name.name)), unread


def _as_text(names: list[Name], unread: list[str]) -> str:
    lines = [f"could not be read: {problem}" for problem in unread]
    for name in names:
        file, numbers = next(iter(name.uses.items()))
        more = f" and {name.count - 1} more" if name.count > 1 else ""
        lines.append(f"{name.status:<8} {name.name:<44} {file}:{numbers[0]}{more}")
        if name.advice:
            lines.append(f"{'':<8} {name.advice}")
    counts = {status: sum(name.status == status for name in names) for status in ("there", "partial", "missing")}
    lines.append(f"{len(names)} names of Ray: " + ", ".join(f"{count} {status}" for status, count in counts.items()))
    return "\n".join(lines)


def _as_json(names: list[Name], unread: list[str]) -> str:
    described = [
        {"name": name.name, "status": name.status, "advice": name.advice, "count": name.count, "uses": name.uses}
        for name in names
    ]
    return json.dumps({"names": described, "unread": unread}, indent=2)


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m oxiray.compat", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file, a folder, or an installed package")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    given = parser.parse_args(arguments)
    try:
        names, unread = read(given.paths)
    except FileNotFoundError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(_as_json(names, unread) if given.format == "json" else _as_text(names, unread))
    return 0 if not unread and all(name.status == "there" for name in names) else 1


if __name__ == "__main__":
    sys.exit(main())
