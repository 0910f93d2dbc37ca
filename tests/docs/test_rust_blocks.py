"""Blocks of Rust on the site are parts of programs that cargo compiles, so that none can go stale.

A block is not compiled itself: it has no imports, and often only the lines that matter. Each of its paragraphs stands in one of the
programs in crates/oxiray/examples, all of a block in the same one, but for comments and the places of spaces and line ends. `…`
stands for lines that are left out. `tests/rust/test_page.py` runs `documented.rs`, and crates/oxiray/tests/examples.rs runs
`accelerators.rs` and `tour.rs`; `cuda.rs` is built by `make cuda-example` alone, and runs where there is a GPU.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import site_pages
import snippets

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "crates" / "oxiray" / "examples"
PAGES = [page for page in site_pages.from_navigation().values() if any(block.language == "rust" for block in snippets.blocks(page.read_text()))]


def code(text: str) -> str:
    """Rust without comments, spaces and the commas that rustfmt puts before line ends."""
    bare = re.sub(r"\s+", "", re.sub(r"(^|\s)//.*$", "", text, flags=re.MULTILINE))
    return re.sub(r",(?=[)\]}])", "", bare)


def stands_in(paragraph: str, program: str) -> bool:
    """Whether a program has the parts of a paragraph between `…`, in their order."""
    place = 0
    for part in paragraph.split("…"):
        place = program.find(part, place)
        if place < 0:
            return False
        place += len(part)
    return True


def foreign(block: str, programs: dict[str, str]) -> list[str]:
    """The paragraphs that the program lacks which has the most of a block."""
    paragraphs = [paragraph for paragraph in block.split("\n\n") if code(paragraph)]
    lacking = ([each for each in paragraphs if not stands_in(code(each), program)] for program in programs.values())
    return min(lacking, key=len)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_of_rust_stand_in_programs_that_are_compiled(page: Path) -> None:
    programs = {path.name: code(path.read_text()) for path in EXAMPLES.glob("*.rs")}
    blocks = [block.text for block in snippets.blocks(page.read_text()) if block.language == "rust"]
    found = [paragraph for block in blocks for paragraph in foreign(block, programs)]
    assert not found, "no one program in crates/oxiray/examples has:\n" + "\n\n".join(found)


def test_what_stands_in_no_program_is_found() -> None:
    programs = {"a.rs": code("fn one() -> i64 {\n    1 // the first\n}\nfn two(\n    a: i64,\n) {\n    one();\n    last();\n}\n")}
    assert foreign("fn one() -> i64 { 1 }\n\nfn two(a: i64) { … last(); }   // there", programs) == []
    assert foreign("fn one() -> i64 { 2 }\n\nfn two(a: i64) { … }", programs) == ["fn one() -> i64 { 2 }"]
    assert foreign("last(); … one();", programs) == ["last(); … one();"]
    assert foreign("fn one() -> i64 { 1 }\n\nother();", {**programs, "b.rs": "other();"}) != [], "all of a block is in one program"
