"""The name of every option is in a page that somebody wrote, and not in the reference of commands alone.

An option that several commands have counts as named where one of them is meant.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
#: Options that the reference alone has, each with the reason.
IN_THE_REFERENCE_ALONE = {
    "--help": "every command has it",
}
COMMAND = re.compile(r"^#{2,3} (oxiray.*)$")
OPTION = re.compile(r"^ {2,8}(?:-\w, )?(--[a-z][\w-]*)")
#: The heading of `oxiray start` under which the reference says of each option why it changes nothing.
WITHOUT_EFFECT = "Without effect:"


def options_of(reference: str) -> dict[str, set[str]]:
    """The options that change something, each with the commands that have it."""
    found: dict[str, set[str]] = {}
    command, is_without_effect = "", False
    for line in reference.splitlines():
        heading = COMMAND.match(line)
        if heading:
            command = heading[1]
        if heading or (line and not line.startswith(" ")):
            is_without_effect = line == WITHOUT_EFFECT
        option = OPTION.match(line)
        if option and not is_without_effect:
            found.setdefault(option[1], set()).add(command)
    return found


def missing(options: dict[str, set[str]], pages: str) -> list[str]:
    named = set(re.findall(r"--[a-z][\w-]*", pages))
    return [f"{option} of {', '.join(sorted(commands))}" for option, commands in sorted(options.items()) if option not in named]


@pytest.fixture(scope="module")
def reference() -> str:
    """The page of commands, as the site has it."""
    command = [sys.executable, ROOT / "scripts" / "site-references"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return str(json.loads(done.stdout)["reference/commands.md"])


def written_pages() -> str:
    """What users read, but for decisions, which say why and not how."""
    pages = [path for path in (ROOT / "docs").rglob("*.md") if "decisions" not in path.parts]
    assert len(pages) > 40
    return "\n".join(path.read_text() for path in [*pages, ROOT / "README.md"])


def test_every_option_is_in_a_page_that_somebody_wrote(reference: str) -> None:
    options = options_of(reference)
    assert len(options) > 120 and "--standby" in options and "--worker-port-list" not in options
    known = set(IN_THE_REFERENCE_ALONE)
    assert known <= options.keys()
    assert missing({option: commands for option, commands in options.items() if option not in known}, written_pages()) == []


def test_what_looks_for_options_finds_those_that_no_page_has() -> None:
    text = "## oxiray one\nOptions:\n  -f, --first <N>  First\n      --second\n\nWithout effect:\n      --third  Changes nothing\n"
    options = options_of(f"{text}## oxiray two\nOptions:\n      --first\n      --fourth=N  Fourth\n")
    assert options == {"--first": {"oxiray one", "oxiray two"}, "--second": {"oxiray one"}, "--fourth": {"oxiray two"}}
    assert missing(options, "`--first-of-all`, `--second=3`") == ["--first of oxiray one, oxiray two", "--fourth of oxiray two"]
