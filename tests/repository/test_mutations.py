"""Every invariant has changes that break it, which `scripts/mutations` makes: their texts are still in the sources."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("mutations", str(ROOT / "scripts" / "mutations"))
    spec = importlib.util.spec_from_loader("mutations", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up.
    sys.modules["mutations"] = module
    loader.exec_module(module)
    return module


MUTATIONS = script().table()


def invariants() -> list[int]:
    """The numbers of the invariants that ARCHITECTURE.md lists."""
    section = (ROOT / "ARCHITECTURE.md").read_text().split("\n## Invariants\n")[1].split("\n## ")[0]
    return [int(number) for number in re.findall(r"^(\d+)\. ", section, re.MULTILINE)]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_can_be_made(mutation: object) -> None:
    source = (ROOT / mutation.file).read_text()
    assert mutation.applied(source) != source
    # What is run names a test, and what it is to say names that test or a rule that it asserts.
    crate = re.search(r"-p oxiray-(\S+)", mutation.command)
    assert crate and (ROOT / "crates" / crate[1]).is_dir()


def test_every_invariant_is_broken_by_a_mutation() -> None:
    known = invariants()
    assert known == list(range(1, len(known) + 1)) and len(known) >= 12
    assert sorted({number for mutation in MUTATIONS for number in mutation.invariants}) == known
    names = [mutation.name for mutation in MUTATIONS]
    assert len(set(names)) == len(names)


def test_a_text_that_is_not_there_once_is_told_of() -> None:
    mutation = script().Mutation("a", (1,), "a.rs", "one", "two", "cargo test", "FAILED")
    assert mutation.applied("one three") == "two three"
    for source in ("three", "one one"):
        with pytest.raises(ValueError, match="and not once"):
            mutation.applied(source)
