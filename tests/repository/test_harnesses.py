"""Cargo makes test programs for the crates that have tests, and for no others: each takes a compilation of the crate."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomllib

CRATES = Path(__file__).resolve().parent.parent.parent / "crates"
#: All but the extension module, whose tests are the Python ones.
LIBRARIES = sorted(library.parent.parent for library in CRATES.glob("*/src/lib.rs") if "python" not in library.parts)
TEST = re.compile(r"^\s*#\[(test|cfg\(test\))\]", re.MULTILINE)
#: A block of code in documentation; `rustdoc` runs what does not say that it is something else.
FENCE = re.compile(r"^\s*//[/!]\s*```(.*)$", re.MULTILINE)
OTHER_LANGUAGES = {"text", "yaml"}


def has_tests(text: str) -> bool:
    return TEST.search(text) is not None


def has_examples(text: str) -> bool:
    opening = FENCE.findall(text)[::2]
    return any(language not in OTHER_LANGUAGES for language in opening)


@pytest.mark.parametrize("crate", LIBRARIES, ids=lambda path: path.name)
def test_a_crate_is_tested_where_it_has_tests(crate: Path) -> None:
    library = tomllib.loads((crate / "Cargo.toml").read_text()).get("lib", {})
    sources = [path.read_text() for path in (crate / "src").rglob("*.rs")]
    assert library.get("test", True) == any(has_tests(text) for text in sources), "`test` of [lib] is wrong"
    assert library.get("doctest", True) == any(has_examples(text) for text in sources), "`doctest` of [lib] is wrong"


def test_what_is_code_is_told_from_what_is_not() -> None:
    assert has_tests("    #[test]\nfn one() {}") and not has_tests("// #[test] is said of them\n#[cfg(unix)]")
    assert has_examples("//! ```text\n//! a map\n//! ```\n/// ```\n/// let one = 1;\n/// ```")
    assert not has_examples('//! ```text\n//! a map\n//! ```\nlet text = "```";')
