"""The register of threads is the one place where threads are started, and its page says the same."""

from __future__ import annotations

import re
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parent.parent.parent
REGISTER = ROOT / "crates" / "threads" / "src" / "register.rs"
#: The system shows no more of a name.
NAME_BYTES_MAX = 15

ENTRY = re.compile(
    r'pub const (?P<constant>\w+): Thread\s*=\s*Thread \{ name: "(?P<name>[^"]+)", owner: "(?P<owner>[^"]+)", '
    r'ends: "(?P<ends>[^"]+)" \};'
)
ROW = re.compile(r"^\| `(?P<name>[^`]+)` \| (?P<owner>[^|]+) \| (?P<task>[^|]+) \| (?P<ends>[^|]+) \|$", re.MULTILINE)


def registered() -> dict[str, tuple[str, str, str]]:
    """By constant: name, owner and end of each thread."""
    text = re.sub(r"\s+", " ", REGISTER.read_text())
    return {entry["constant"]: (entry["name"], entry["owner"], entry["ends"]) for entry in ENTRY.finditer(text)}


def sources() -> dict[Path, str]:
    """All Rust sources but those of the register's crate."""
    crates = ROOT / "crates"
    found = [path for path in crates.rglob("*.rs") if path.relative_to(crates).parts[0] != "threads"]
    return {path: path.read_text() for path in found}


def test_the_page_says_what_the_register_says() -> None:
    entries = registered()
    assert len(entries) == REGISTER.read_text().count(": Thread =") > 10
    rows = [(row["name"], row["owner"], row["ends"]) for row in ROW.finditer((ROOT / "docs" / "threads.md").read_text())]
    assert rows == list(entries.values())


def test_names_are_shown_whole_and_name_one_thread() -> None:
    names = [name for name, _, _ in registered().values()]
    assert len(set(names)) == len(names)
    assert [name for name in names if len(name.encode()) > NAME_BYTES_MAX] == []


def test_every_thread_that_is_registered_is_started_somewhere() -> None:
    texts = [re.sub(r"(?s)#\[cfg\(test\)\]\nmod tests \{.*", "", text) for text in sources().values()]
    started = {match for text in texts for match in re.findall(r"\b(?:oxiray_threads::)?([A-Z][A-Z_]+),", text)}
    assert registered().keys() - started == set()


def test_threads_are_started_nowhere_else() -> None:
    banned = tomllib.loads((ROOT / "clippy.toml").read_text())["disallowed-methods"]
    assert {
        "std::thread::spawn",
        "std::thread::Builder::spawn",
        "std::thread::Builder::spawn_scoped",
        "std::thread::Scope::spawn",
    } <= {entry["path"] for entry in banned}
