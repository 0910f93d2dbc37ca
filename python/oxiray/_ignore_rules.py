"""Which files of a folder stay behind: the pattern language of `.gitignore`.

Invariants:
1. The last pattern that fits decides, as in git; `!` takes a file back in.
2. What lies in an ignored folder is ignored: nothing inside can be taken back in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

#: Files with patterns, read in every folder.
_FILES = (".gitignore", ".rayignore")


class Rules:
    """Patterns that hold at and below one folder."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._patterns = [pattern for line in lines if (pattern := _compiled(line)) is not None]

    def verdict(self, path: str, is_folder: bool) -> bool | None:
        """Whether `path`, relative to the folder with `/` between its parts, stays behind; None for no opinion."""
        for expression, is_taken_back, folders_only in reversed(self._patterns):
            if (is_folder or not folders_only) and expression.match(path):
                return not is_taken_back
        return None


def of_folder(folder: Path, with_gitignore: bool) -> Rules | None:
    """The rules that the files in `folder` itself state."""
    lines: list[str] = []
    for name in _FILES:
        if name == ".gitignore" and not with_gitignore:
            continue
        try:
            lines += (folder / name).read_text(errors="replace").splitlines()
        except OSError:
            continue
    return Rules(lines) if lines else None


def _compiled(line: str) -> tuple[re.Pattern[str], bool, bool] | None:
    text = line.rstrip("\n")
    while text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1]
    if not text or text.startswith("#"):
        return None
    is_taken_back = text.startswith("!")
    if is_taken_back:
        text = text[1:]
    if text.startswith(("\\#", "\\!")):
        text = text[1:]
    folders_only = text.endswith("/")
    text = text.rstrip("/")
    if not text:
        return None
    # A slash that is not at the end ties the pattern to its folder.
    is_anchored = "/" in text
    text = text.lstrip("/")
    prefix = "" if is_anchored else "(?:.*/)?"
    return re.compile(f"{prefix}{_expression(text)}$", re.DOTALL), is_taken_back, folders_only


def _expression(pattern: str) -> str:
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        rest = pattern[at:]
        if rest.startswith("**/"):
            parts.append("(?:.*/)?")
            at += 3
        elif rest.startswith("/**") and len(rest) == 3:
            parts.append("/.+")
            at += 3
        elif rest.startswith("**"):
            parts.append(".*")
            at += 2
        elif rest[0] == "*":
            parts.append("[^/]*")
            at += 1
        elif rest[0] == "?":
            parts.append("[^/]")
            at += 1
        elif rest[0] == "[" and (end := rest.find("]", 2)) > 0:
            inner = rest[1:end].replace("\\", "\\\\")
            inner = "^" + inner[1:] if inner[0] == "!" else inner
            parts.append(f"[{inner}]")
            at += end + 1
        elif rest[0] == "\\" and len(rest) > 1:
            parts.append(re.escape(rest[1]))
            at += 2
        else:
            parts.append(re.escape(rest[0]))
            at += 1
    return "".join(parts)
