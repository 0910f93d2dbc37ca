"""What the page of `crates/dashboard/page` is made of: what was taken from others is as it was taken, and nothing is inline."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "crates" / "dashboard" / "page"
SUMS = PAGE / "vendor" / "SHA256SUMS"
LINES_MAX = 500


def own() -> list[Path]:
    """The modules and styles that were written here."""
    found = [path for end in ("js", "css") for path in PAGE.rglob(f"*.{end}") if "vendor" not in path.parts]
    assert len(found) > 10
    return found


def test_what_was_taken_from_others_is_unchanged() -> None:
    listed = dict(reversed(line.split()) for line in SUMS.read_text().splitlines() if not line.startswith("#"))
    there = {
        path: hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in (SUMS.parent, ROOT / "tests" / "dashboard" / "page")
        for path in folder.iterdir()
        if path.suffix in {".js", ".css"} or path.name.startswith("LICENSE")
    }
    assert {str(path.relative_to(ROOT)): digest for path, digest in there.items()} == listed


def test_each_library_has_its_license_beside_it() -> None:
    names = {path.name for path in SUMS.parent.iterdir()}
    assert {"LICENSE-htm", "LICENSE-preact", "LICENSE-uplot"} <= names


def test_modules_are_short_and_say_what_they_are_for() -> None:
    long = [str(path) for path in own() if len(path.read_text().splitlines()) >= LINES_MAX]
    mute = [str(path) for path in own() if not path.read_text().startswith(("/**\n", "/* ", "// "))]
    assert (long, mute) == ([], [])


def test_the_document_has_neither_scripts_nor_styles_within() -> None:
    document = (PAGE / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", document) == []
    addresses = re.findall(r'(?:src|href)="([^"]+)"', document)
    assert addresses
    assert [address for address in addresses if not (PAGE / address.removeprefix("static/")).is_file()] == []


def test_nothing_becomes_markup_and_nobody_else_is_asked() -> None:
    # Names and errors of programs enter as text nodes; the namespace of SVG is no address that is asked.
    wrong = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?://")
    found = {str(path): wrong.findall(path.read_text()) for path in own()}
    assert {path: words for path, words in found.items() if words} == {}


def test_every_module_that_is_imported_is_there() -> None:
    for path in own():
        for name in re.findall(r'from "(\.[^"]+)"', path.read_text()):
            assert (path.parent / name).resolve().is_file(), (path, name)


def test_it_is_built_without_anything_of_javascripts() -> None:
    # Everything that makes a wheel, whatever is there already.
    steps = subprocess.run(["make", "--dry-run", "--always-make", "wheel"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "cargo build" in steps and "maturin build" in steps
    scripts = [path.read_text() for path in (ROOT / "crates").glob("*/build.rs")]
    tools = re.compile(r"\b(npm|npx|node|yarn|pnpm|esbuild|vite|tsc|corepack)\b(?!\w)")
    commands = [word for text in scripts for word in re.findall(r'Command::new\("([^"]+)"', text)]
    assert tools.findall(steps) == [] and not any(tools.search(command) for command in commands)
