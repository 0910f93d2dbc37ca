"""Rust sources as text without comments and literals, and what the rules of `tests/repository` measure in them.

No parser: the sources are formatted and compile, so that brackets pair and words that look like items are items.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

#: A module's path within its crate; that of the crate itself is empty.
Module = tuple[str, ...]

_QUIET = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(?P<hashes>\#*)".*?"(?P=hashes)|b?"(?:\\.|[^"\\])*"|b?'(?:\\.[^']*|[^'\\])'(?!\w)""", re.DOTALL
)
_OF_TESTS = re.compile(
    r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))? )?(?:mod|fn|impl|use|struct)\b[^{;]*[{;]"
)
_STRUCT = re.compile(r"\bstruct\s+(\w+)[^;{]*\{")
_TYPE = re.compile(r"^( *)(pub(?:\([^)]*\))? )?(?:struct|enum|trait|type|union)\s+(\w+)", re.MULTILINE)
_METHOD = re.compile(r"\bfn (\w+)")
_GENERICS = r"(?:<(?:[^<>{;]|<[^<>{;]*>)*>)?"
_IMPL = re.compile(rf"\bimpl{_GENERICS} (\w+){_GENERICS}(?:\s+where\b[^{{]*)?\s*\{{")
_CALL = re.compile(r"\bself\s*\.\s*(\w+)\s*\(|\bSelf::(\w+)\b")
_USE = re.compile(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
_PATH = re.compile(r"(?<![\w:])((?:crate|super|self|[a-z_]\w*)(?:::\w+)+)")
#: How many re-exports in a row are followed to where a name is defined.
_REEXPORTS_MAX = 6


def without_literals(text: str) -> str:
    """The source with comments and literals blanked: every line stays where it was."""
    return _QUIET.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def product_code(path: Path) -> str:
    """A file without comments, literals, and what only tests compile."""
    text = without_literals(path.read_text())
    while match := _OF_TESTS.search(text):
        end = match.end() if match[0].endswith(";") else closing(text, match.end() - 1) + 1
        text = text[: match.start()] + re.sub(r"[^\n]", " ", text[match.start() : end]) + text[end:]
    return text


def closing(text: str, opening: int) -> int:
    """Where the bracket that opens at `opening` closes."""
    depth = 0
    for place in range(opening, len(text)):
        depth += (text[place] in "{([") - (text[place] in "})]")
        if depth == 0:
            return place
    raise AssertionError(f"a bracket does not close: {text[opening : opening + 40]!r}")


def parts(text: str) -> list[str]:
    """What stands between the commas of a list, but for those within brackets."""
    found, depth, start = [], 0, 0
    for place, character in enumerate(text):
        is_arrow = character == ">" and text[place - 1] in "-="
        depth += (character in "{([<") - (character in "})]>" and not is_arrow)
        if character == "," and depth == 0:
            found.append(text[start:place])
            start = place + 1
    return [part.strip() for part in (*found, text[start:]) if part.strip()]


def structs(code: str) -> Iterator[tuple[str, int]]:
    """Each struct with named fields, and how many it has."""
    for match in _STRUCT.finditer(code):
        yield match[1], len(parts(code[match.end() : closing(code, match.end() - 1)]))


def public_types(code: str) -> Iterator[str]:
    """The names of a file's types that other crates can see: elsewhere the lint `unreachable_pub` forbids a plain `pub`."""
    return (match[3] for match in _TYPE.finditer(code) if match[2] == "pub ")


def modules_of(source: Path) -> dict[Module, str]:
    """The code of each file of a crate's library by its module, without those of tests."""
    found = {}
    for path in sorted(source.rglob("*.rs")):
        module = path.relative_to(source).with_suffix("").parts
        if "tests" not in module and module != ("main",):
            found[() if module == ("lib",) else module] = product_code(path)
    return found


def imports(modules: Mapping[Module, str]) -> dict[Module, set[Module]]:
    """Which files each file names something of, by `use` or by a path; a re-export leads to where the name is defined."""
    named: dict[Module, list[Module]] = {module: [] for module in modules}
    bound: dict[Module, dict[str, Module]] = {module: {} for module in modules}
    for module, code in modules.items():
        for match in _USE.finditer(code):
            for path, name in _use_tree((), match[2]):
                if (whole := _absolute(modules, module, path)) is not None:
                    bound[module][name] = whole
                    # A re-export is no use of its own: whoever imports the name leans on the file that it comes from.
                    if not match[1]:
                        named[module].append(whole)
        for match in _PATH.finditer(_USE.sub(" ", code)):
            if (whole := _absolute(modules, module, tuple(match[1].split("::")))) is not None:
                named[module].append(whole)
    edges: dict[Module, set[Module]] = {}
    for module, paths in named.items():
        resolved = {_file_of(modules, bound, path) for path in paths}
        edges[module] = {other for other in resolved if other is not None and other != module}
    return edges


def method_calls(modules: Mapping[Module, str], name: str) -> dict[Module, set[Module]]:
    """Which files each file calls methods in of a type whose `impl` stands in several of them."""
    bodies = {module: "\n".join(body for of, body in implementations(code) if of == name) for module, code in modules.items()}
    where = {method: module for module, body in bodies.items() for method in _METHOD.findall(body)}
    called = {module: {where.get(one or other) for one, other in _CALL.findall(body)} for module, body in bodies.items()}
    return {module: {other for other in others if other is not None and other != module} for module, others in called.items()}


def implementations(code: str) -> Iterator[tuple[str, str]]:
    """Each block of a type's own methods, those of traits left out: the type, and what stands in the block."""
    return ((match[1], code[match.end() : closing(code, match.end() - 1)]) for match in _IMPL.finditer(code))


def spread_types(modules: Mapping[Module, str]) -> dict[str, int]:
    """The types whose methods stand in several files that call each other in a circle, and how many files these are."""
    places: dict[str, set[Module]] = {}
    for module, code in modules.items():
        for name, _ in implementations(code):
            places.setdefault(name, set()).add(module)
    spread = {name: circles(method_calls(modules, name)) for name, where in places.items() if len(where) > 1}
    return {name: max(map(len, found)) for name, found in spread.items() if found}


def circles(edges: Mapping[Module, set[Module]]) -> list[set[Module]]:
    """The groups of files that each lead to every other of the group, by Tarjan's algorithm; single files are left out."""
    index: dict[Module, int] = {}
    low: dict[Module, int] = {}
    stack: list[Module] = []
    found = []

    def visit(module: Module) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(edges[module]):
            if other not in index:
                visit(other)
            if other in stack:
                low[module] = min(low[module], low[other])
        if low[module] == index[module]:
            start = stack.index(module)
            if len(stack) - start > 1:
                found.append(set(stack[start:]))
            del stack[start:]

    for module in sorted(edges):
        if module not in index:
            visit(module)
    return found


def _use_tree(prefix: Module, text: str) -> Iterable[tuple[Module, str]]:
    """The paths of a `use`, each with the name that it binds."""
    head, brace, _ = text.partition("{")
    if brace:
        inner = text[len(head) + 1 : closing(text, len(head))]
        prefix += tuple(part.strip() for part in head.split("::") if part.strip())
        for part in parts(inner):
            yield from _use_tree(prefix, part)
        return
    path, _, name = text.partition(" as ")
    whole = prefix + tuple(part.strip() for part in path.split("::"))
    if whole[-1] == "self":
        whole = whole[:-1]
    yield whole, name.strip() or whole[-1]


def _absolute(modules: Mapping[Module, str], module: Module, path: Module) -> Module | None:
    """A path from the crate's root; None where it leads to another crate or is none of a module."""
    first, rest = path[0], path[1:]
    if first == "crate":
        return rest
    if first == "self":
        return module + rest
    if first == "super":
        while path and path[0] == "super":
            module, path = module[:-1], path[1:]
        return module + path
    return module + path if (*module, first) in modules else None


def _file_of(
    modules: Mapping[Module, str], bound: Mapping[Module, Mapping[str, Module]], path: Module, followed: int = 0
) -> Module | None:
    """The module whose file defines what a path names."""
    for length in range(len(path), -1, -1):
        module, rest = path[:length], path[length:]
        if module in modules:
            if rest and followed < _REEXPORTS_MAX and (leads_to := bound[module].get(rest[0])) is not None:
                return _file_of(modules, bound, leads_to + rest[1:], followed + 1)
            return module
    return None
