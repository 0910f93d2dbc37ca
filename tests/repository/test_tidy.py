"""Hygiene that keeps the code readable: module docs, unfinished work, links, documents that name every crate."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.*)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def files(*patterns: str) -> list[Path]:
    """The repository's own files, those not yet committed too."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    found = [ROOT / name for name in listed if (ROOT / name).is_file()]
    assert found, patterns  # a pattern that matches nothing checks nothing
    return found


def relative(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def test_rust_files_say_what_they_are_for() -> None:
    # A module of unit tests is about the file it belongs to; its name says so.
    named = [path for path in files("*.rs") if path.stem != "tests"]
    assert relative([path for path in named if not path.read_text().startswith("//! ")]) == []


def test_python_files_say_what_they_are_for() -> None:
    undocumented = [
        path
        for path in files("*.py", "*.pyi")
        if path.name != "__init__.pyi" and not re.match(r'(#![^\n]*\n)?(#[^\n]*\n)*r?"""\S', path.read_text())
    ]
    assert relative(undocumented) == []


def test_no_unfinished_work() -> None:
    unfinished = re.compile(r"\b(todo|unimplemented)!|\b(FIXME|XXX)\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files("*.rs", "*.py")
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if unfinished.search(line)
    ]
    assert found == []


def test_lints_are_expected_with_a_reason_and_never_allowed() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files("crates/*.rs")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"#!?\[allow\(", line)
    ]
    assert found == []


def test_assertions_run_in_every_build() -> None:
    # There is one profile, without debug assertions: what the compiler leaves out guards nothing, not even in tests.
    left_out = re.compile(r"\bdebug_assert(_eq|_ne)?!|\bcfg!?\([^\n]*\bdebug_assertions\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files("crates/*.rs")
        if path.relative_to(ROOT).parts[2] == "src"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if left_out.search(line)
    ]
    assert found == []


def anchor(heading: str) -> str:
    """A heading's link target, as code hosts make it."""
    text = re.sub(r"[`*_]", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@pytest.mark.parametrize("document", files("*.md"), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(document: Path) -> None:
    broken = []
    for target in LINK.findall(FENCED.sub("", document.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, fragment = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        if not path.exists():
            broken.append(target)
        elif fragment and path.suffix == ".md":
            anchors = [anchor(heading) for heading in HEADING.findall(FENCED.sub("", path.read_text()))]
            if fragment not in anchors:
                broken.append(target)
    assert broken == []


@pytest.mark.parametrize("document", ["docs/faults.md", "docs/security.md"])
def test_proofs_that_are_named_exist(document: str) -> None:
    named = re.findall(r"`((?:crates|docs|tests)/[\w/.-]+)`", (ROOT / document).read_text())
    assert named, "a document that names no test shows nothing"
    assert [name for name in named if not list(ROOT.glob(f"{name}*"))] == []


def test_architecture_names_every_crate() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    crates = [path.parent.name for path in sorted((ROOT / "crates").glob("*/Cargo.toml"))]
    assert [crate for crate in crates if f"`{crate}`" not in text] == []


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = sorted(int(path.name[:4]) for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_index_of_decisions_is_whole() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(r"\| \[(\d+)\]\((\d{4})-[\w-]+\.md\):", (folder / "README.md").read_text())
    assert sorted(int(number) for number, _ in listed) == sorted(int(path.name[:4]) for path in folder.glob("[0-9]*.md"))
    assert [number for number, name in listed if int(number) != int(name)] == []


def test_nothing_reaches_outside_the_repository() -> None:
    outside = re.compile(r"\.\./shared|/work/shared")
    found = [
        str(path.relative_to(ROOT))
        for path in files()
        if path != Path(__file__) and path.suffix not in {".lock"} and outside.search(path.read_text(errors="replace"))
    ]
    assert found == []


def test_wire_document_lists_every_message() -> None:
    coded = re.findall(r"^ +(\d+) => (\w+)(?: boxed)?(?: \[\w+\])?,$", (ROOT / "crates/wire/src/message.rs").read_text(), re.MULTILINE)
    documented = re.findall(r"^\| (\d+) \| `(\w+)` \|", (ROOT / "docs/formats/wire.md").read_text(), re.MULTILINE)
    assert coded
    assert sorted(coded) == sorted(documented)


def test_wire_document_tells_every_direction() -> None:
    source = (ROOT / "crates/wire/src/message/directions.rs").read_text()
    leaf = re.findall(r"^direction! \{\n(?:    ///[^\n]*\n)+    (\w+):([^}]*)\n\}", source, re.MULTILINE)
    composed = re.findall(r"^parts! \{\n(?:    ///[^\n]*\n)+    (\w+):\n(.*?)\n\}", source, re.MULTILINE | re.DOTALL)
    messages = {name: sorted(re.findall(r"\w+", listed)) for name, listed in leaf}
    streams = {name: sorted(re.findall(r"\((\w+)\)", listed)) for name, listed in composed}
    rows = re.findall(
        r"^\| `(\w+)` \| [^|]+ \| ((?:`\w+`(?:, )?)+) \|$", (ROOT / "docs/formats/wire.md").read_text(), re.MULTILINE
    )
    assert messages | streams == {name: sorted(re.findall(r"`(\w+)`", listed)) for name, listed in rows}
    numbered = re.findall(r"^ +\d+ => (\w+)", (ROOT / "crates/wire/src/message.rs").read_text(), re.MULTILINE)
    assert set(numbered) == set().union(*messages.values())
