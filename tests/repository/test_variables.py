"""Every environment variable stands in one register, from which its page is made."""

from __future__ import annotations

import re
from pathlib import Path

from oxiray import _switches, _variables

ROOT = Path(__file__).resolve().parent.parent.parent
REGISTER = ROOT / "python/oxiray/_variables.py"
NAMES = re.compile(r"[\"'`]((?:OXIRAY|RAY)_[A-Za-z0-9_]*[A-Za-z0-9])[\"'`]")
#: Names of Python's and fragments of names, which are no variables.
NO_VARIABLES = {"RAY_COMMIT", "RAY_VERSION", "RAY_EXCEPTION_TYPES", "RAY_TRAIN", "RAY_NODE_ID_KEY", "RAY_KILL"}


def named_in_the_sources() -> set[str]:
    """The names that stand as texts in the product's sources, and those that are made of a prefix and a switch."""
    rust = [path for path in (ROOT / "crates").glob("*/src/**/*.rs") if "tests" not in path.with_suffix("").parts]
    rust = [path for path in rust if path.relative_to(ROOT / "crates").parts[0] not in ("eighth-family", "fuzz", "sim")]
    texts = [path.read_text().split("#[cfg(test)]\nmod tests {")[0] for path in rust]
    texts += [path.read_text() for path in (ROOT / "python/oxiray").rglob("*.py") if path != REGISTER]
    code = ["\n".join(line.split("//")[0] for line in text.splitlines()) for text in texts]
    assert len(code) > 400
    switches = {f"RAY_{name}" for name in _switches.KNOWN}
    return {name for text in code for name in NAMES.findall(text)} - NO_VARIABLES | switches


def test_every_variable_in_the_sources_is_in_the_register() -> None:
    assert [name for name in sorted(named_in_the_sources()) if not _variables.is_known(name)] == []


def test_every_variable_of_the_register_is_in_the_sources() -> None:
    named = named_in_the_sources()
    unread = [one.name for one in _variables.every() if not any(map(one.matches, named))]
    # It says what is so in any case.
    assert unread == ["RAY_USAGE_STATS_ENABLED"]


def test_the_command_line_knows_the_switches() -> None:
    source = (ROOT / "crates/cli/src/start.rs").read_text()
    listed = re.search(r"const SWITCHES: [^=]*= \[(.*?)\];", source, re.DOTALL)
    assert listed is not None and tuple(re.findall(r'"(\w+)"', listed[1])) == _switches.KNOWN


def test_the_page_is_made_from_the_register() -> None:
    assert (ROOT / "docs/environment-variables.md").read_text() == _variables.page(), "run scripts/write-variables"


def test_a_family_of_names_is_known_by_its_prefix() -> None:
    assert _variables.is_known("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES")
    assert not _variables.is_known("RAY_EXPERIMENTAL_NOSET_") and not _variables.is_known("RAY_NOBODY")
