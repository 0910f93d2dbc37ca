"""Says what of Ray a program uses, and whether Oxiray has it: `oxiray compat PATH...`, or `python -m oxiray.compat`.

Purpose: to know before moving a program what will be missing, and what to do instead. It sees names, options of calls,
calls such as `.bind()`, environment variables, and commands with their options, in Python and in shell scripts, YAML and
Dockerfiles. A path is a file, a folder, or the name of an installed package. Programs are read, never run. The exit status
is 0 where everything is there.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import importlib.util
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from oxiray import _cli, _init_options, _missing, _option_rules as rules, _variables
from oxiray._libraries import loading
from oxiray._without_effect import OPTIONS

#: What a program may write that is no name of a module, and why it is not there.
_MISSING = {
    'num_returns="dynamic"': "is deprecated in Ray: leave num_returns out, and read the references that the call yields",
    ".experimental_compile()": "makes compiled graphs, which Ray plans to remove: call execute(), or the actors' methods",
}
_ROOTS = ("ray", "oxiray")
#: Libraries whose names are there to be imported, and refuse to be used.
_REFUSING = ("data",)
#: Files beside Python's in which commands and variables are looked for.
_SCRIPTS = (".sh", ".bash", ".yaml", ".yml", ".toml", ".cfg", ".env")
#: The most lines of one name that a table shows.
_LINES_SHOWN_MAX = 8
_VARIABLE = re.compile(r"\bRAY_[A-Za-z0-9_]+\b")
_COMMAND = re.compile(r"(?<![\w./-])ray +([a-z][a-z-]+)([^\n;|&]*)")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


@functools.cache
def _keywords(function: str) -> frozenset[str]:
    """The keywords that a function of Ray's takes; empty for functions whose keywords are not looked at."""
    if function == "init":
        own = inspect.signature(_init_options.init_options).parameters
        return frozenset(own) - {"hidden"} | frozenset(_init_options._HIDDEN)
    options = {**rules.TASK_RULES, **rules.ACTOR_RULES}
    known = {"remote": options, "method": rules.METHOD_RULES, "options": {**options, **rules.METHOD_CALL_RULES}}
    return frozenset(known.get(function, ()))


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
        if self.bound:
            function = (self._dotted(node.func) or "").partition(".")[2].rpartition(".")[2]
            self._read_keywords(function, node)
            if any(one.arg == "num_returns" and getattr(one.value, "value", None) == "dynamic" for one in node.keywords):
                self.found.append(('num_returns="dynamic"', node.lineno))
            if isinstance(node.func, ast.Attribute):
                self._read_method(node.func, node.lineno)
        self.generic_visit(node)

    def _read_keywords(self, function: str, node: ast.Call) -> None:
        for keyword in node.keywords:
            given = keyword.value.value if isinstance(keyword.value, ast.Constant) else ...
            defaults, _ = OPTIONS.get(function, {}).get(str(keyword.arg), ((given,), ""))
            is_unknown = bool(_keywords(function)) and keyword.arg is not None and keyword.arg not in _keywords(function)
            if given not in defaults or is_unknown:
                self.found.append((f"ray.{function}({keyword.arg}=)", node.lineno))

    def _read_method(self, called: ast.Attribute, line: int) -> None:
        if called.attr in ("experimental_compile", "bind"):
            self.found.append((f".{called.attr}()", line))
        inner = called.value
        is_call = called.attr in ("remote", "bind") and isinstance(inner, ast.Call)
        if is_call and isinstance(inner.func, ast.Attribute) and inner.func.attr == "options":
            self._read_keywords("options", inner)

    def visit_Constant(self, node: ast.Constant) -> None:
        # Sentences about variables and commands are none that a program uses.
        if isinstance(node.value, str) and self.bound:
            if _VARIABLE.fullmatch(node.value):
                self.found.append((f"${node.value}", node.lineno))
            elif node.value.startswith("ray "):
                self.found.extend((name, node.lineno) for name in _commands_in(node.value))

    def _dotted(self, node: ast.AST) -> str | None:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.bound:
            return None
        return _under_ray(".".join([self.bound[node.id], *reversed(parts)]))


def _commands_in(line: str) -> Iterator[str]:
    """`ray start`, and `ray start --head` for each option that the line gives to it."""
    for command, rest in _COMMAND.findall(line):
        if _options_of(command) is not None or _is_command_of_ray(command):
            yield f"ray {command}"
            yield from (f"ray {command} {flag}" for flag in _FLAG.findall(rest.split(" -- ")[0]))


def _names_in_script(text: str) -> Iterator[tuple[str, int]]:
    """What a file that is not Python's names of Ray, with the line."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.lstrip().startswith("#"):
            yield from ((f"${name}", number) for name in _VARIABLE.findall(line))
            yield from ((name, number) for name in _commands_in(line))


@functools.cache
def _help(*words: str) -> str | None:
    """What a command's help says; None where there is no such command."""
    asked = subprocess.run([str(_cli.native_binary()), *words, "--help"], capture_output=True, text=True, check=False)
    return asked.stdout if asked.returncode == 0 else None


def _options_of(command: str) -> frozenset[str] | None:
    """The options of a command, those of its own commands too; None where there is no such command."""
    if command in _cli.PYTHON_COMMANDS:
        return frozenset(_cli.PYTHON_COMMANDS[command][1])
    text = _help(command)
    if text is None:
        return None
    orders = re.findall(r"^  ([a-z][a-z-]+) ", text.partition("Commands:")[2].partition("Options:")[0], re.MULTILINE)
    texts = [text, *(_help(command, order) or "" for order in orders if order != "help")]
    return frozenset(_FLAG.findall("\n".join(texts)))


@functools.cache
def _is_command_of_ray(command: str) -> bool:
    """Whether Ray has a command of this name that is not here, as the refusal of it says."""
    asked = subprocess.run([str(_cli.native_binary()), command], capture_output=True, text=True, check=False)
    return "is a command of Ray's" in asked.stderr


def _check_command(name: str) -> Name:
    _, command, *flags = name.split(" ")
    options = _options_of(command)
    if options is None:
        return Name(name, "missing", "is a command of Ray's that Oxiray does not have: see what `oxiray` lists")
    unknown = [flag for flag in flags if flag not in options]
    return Name(name, "missing", f"is no option: `oxiray {command} --help` lists those there are") if unknown else Name(name, "there")


def _check_keyword(name: str) -> Name:
    function, _, keyword = name.removeprefix("ray.").removesuffix("=)").partition("(")
    if keyword in OPTIONS.get(function, {}):
        return Name(name, "partial", f"is accepted without effect: {OPTIONS[function][keyword][1]}")
    return Name(name, "missing", f"is no option; those there are: {', '.join(sorted(_keywords(function)))}")


def _check_variable(name: str) -> Name:
    if _variables.is_known(name[1:]):
        return Name(name, "there")
    return Name(name, "partial", "is read by nothing in Oxiray: what Ray does with it does not happen")


def _check_bind(name: str) -> Name:
    from oxiray.remote_function import RemoteFunction

    return Name(name, "there" if hasattr(RemoteFunction, "bind") else "missing", _missing.advice("dag"))


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
    for is_meant, look in (
        (name.startswith("$"), _check_variable),
        (name.startswith("ray "), _check_command),
        (name.endswith("=)"), _check_keyword),
        (name == ".bind()", _check_bind),
    ):
        if is_meant:
            return look(name)
    parts = name.split(".")[1:]
    # Libraries of Ray's have their own names, where they are installed.
    root = "ray" if parts and loading.serves(parts[0]) else "oxiray"
    if root == "oxiray" and parts and parts[0] in _REFUSING:
        return Name(".".join(["ray", *parts[:2]]), "missing", _missing.advice(".".join(parts[:2])))
    here: Any = importlib.import_module(root)
    for depth, part in enumerate(parts, 1):
        dotted = ".".join(parts[:depth])
        if not isinstance(here, ModuleType):
            break
        try:
            following = getattr(here, part, None)
        except ImportError as error:
            return Name(f"ray.{dotted}", "partial", f"is there, and needs what is not installed: {error}")
        if following is None and not hasattr(here, part):
            following = _module(f"{root}.{dotted}") or (_module("cloudpickle") if part == "cloudpickle" else None)
        if following is None and not hasattr(here, part):
            return Name(f"ray.{dotted}", "missing", _missing.advice(dotted))
        here = following
        if not isinstance(here, ModuleType):
            return Name(f"ray.{dotted}", "there")
    return Name(name, "there")


def files_of(path: str) -> Iterator[Path]:
    """The files to read of a file, a folder, or an installed package. Raises `FileNotFoundError` where it is none."""
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
    is_read = lambda path: path.suffix in (".py", *_SCRIPTS) or path.name.startswith("Dockerfile")  # noqa: E731
    yield from sorted(path for path in given.rglob("*") if is_read(path) and path.is_file())


def _found_in(file: Path) -> list[tuple[str, int]]:
    """What a file names of Ray. Raises `OSError`, `SyntaxError` or `ValueError` where it cannot be read."""
    if file.suffix in _SCRIPTS or file.name.startswith("Dockerfile"):
        return list(_names_in_script(file.read_text()))
    reader = _Reader()
    reader.visit(ast.parse(file.read_bytes(), str(file)))
    return reader.found


def read(paths: list[str]) -> tuple[list[Name], list[str]]:
    """The names that are used, missing ones first, and the files that could not be read."""
    names: dict[str, Name] = {}
    checked: dict[str, Name] = {}
    unread: list[str] = []
    for path in paths:
        for file in files_of(path):
            try:
                found = _found_in(file)
            except (OSError, SyntaxError, ValueError) as error:
                unread.append(f"{file}: {error}")
                continue
            for used, line in found:
                if used not in checked:
                    checked[used] = check(used)
                verdict = checked[used]
                known = names.setdefault(verdict.name, verdict)
                known.uses.setdefault(str(file), []).append(line)
    order = {"missing": 0, "partial": 1, "there": 2}
    return sorted(names.values(), key=lambda name: (order[name.status], -name.count, name.name)), unread


def _as_text(names: list[Name], unread: list[str]) -> str:
    """A table for each file: what it uses that is not wholly there, with the lines, and how much is there."""
    lines = [f"could not be read: {problem}" for problem in unread]
    for file in sorted({file for name in names for file in name.uses}):
        used = [name for name in names if file in name.uses]
        there = sum(name.status == "there" for name in used)
        lines += [file, f"  {there} of {len(used)} names of Ray are there" + ("" if there == len(used) else "; the others:")]
        for name in used:
            if name.status != "there":
                numbers = ", ".join(map(str, name.uses[file][:_LINES_SHOWN_MAX]))
                lines.append(f"  {name.status:<8} {name.name:<44} line {numbers}")
                lines.append(f"  {'':<8} {name.advice}")
        lines.append("")
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
    parser = argparse.ArgumentParser(prog="oxiray compat", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file, a folder, or an installed package")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format=json")
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
