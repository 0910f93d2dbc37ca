"""The README is for who has a minute: it begins with two commands, and its figures are those that were measured."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text()
#: How long it may be, to be read in a minute.
WORDS_MAX = 1000


def rows(text: str) -> set[tuple[str, ...]]:
    """The first four cells of each row of a table."""
    cells = (tuple(cell.strip() for cell in line.strip("|").split("|")) for line in text.splitlines() if line.startswith("| "))
    return {row[:4] for row in cells}


def test_it_opens_with_the_two_commands() -> None:
    first = re.search(r"```sh\n(.*?)```", README, re.DOTALL)
    assert first is not None and README.index("```sh") < 20
    assert [line.split("#")[0].split() for line in first.group(1).splitlines()] == [["make", "demo"], ["make", "test"]]


def test_its_figures_stand_in_the_benchmarks() -> None:
    shown = {row for row in rows(README) if row[-1].endswith("×")}
    assert len(shown) == 3
    assert shown - rows((ROOT / "benches" / "RESULTS.md").read_text()) == set(), "they were measured anew: copy the rows"


def test_it_is_read_in_a_minute() -> None:
    assert len(README.split()) <= WORDS_MAX
    for heading in ("Why", "Install", "First program", "Where next"):
        assert f"\n## {heading}\n" in README
