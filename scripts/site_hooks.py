"""Hooks of the documentation site (`mkdocs.yml`): pages that are made when the site is built, and links out of docs/.

Purpose: documents that lie beside the sources (ARCHITECTURE.md, benches) and references that programs write of
themselves are pages of the site, without copies in the repository.

Invariant: a link to a file of the repository that is no page becomes plain text; all others are left for mkdocs to check.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import subprocess
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
#: Documents outside docs/ that are pages, and where.
OUTSIDE = {
    "ARCHITECTURE.md": "internals/architecture.md",
    "CONTRIBUTING.md": "internals/contributing.md",
    "CHANGELOG.md": "reference/changelog.md",
    "benches/RESULTS.md": "reference/benchmarks.md",
    "README.md": "index.md",
}
#: Where each page's text lies in the repository, for pages that do not lie in docs/.
_ORIGINS = {page: document for document, page in OUTSIDE.items() if page != "index.md"}
#: Pages for who works on Oxiray, or of long tables: the search ranks them below those for who uses it.
_RANKED_LOWER = re.compile(r"(internals|decisions|formats)/|(compatibility|third-parties|faults|threads|device-adversary|reference/changelog)\.md")
_FENCE = re.compile(r"^( *)(```+).*?^\1\2\s*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]\n]|\[[^\]\n]*\])+)\]\(([^)\s]+)\)")


#: The pages that the installed Oxiray writes of itself; made once for each build.
_written: dict[str, str] = {}


def on_config(config: Any) -> Any:
    """Adds the pages whose number changes to the navigation: decisions, and modules of the API."""
    _written.update(_written_by_programs())
    modules = [page for page in _written if page.startswith("reference/api/")]
    decisions = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    sections = {name: pages for section in config.nav for name, pages in section.items()}
    sections["Reference"].insert(0, {"Python API": ["reference/api.md", *modules]})
    sections["Internals"].append({"Decisions": ["decisions/README.md", *decisions]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that do not lie in docs/."""
    for page, document in _ORIGINS.items():
        files.append(File.generated(config, page, content=(ROOT / document).read_text()))
    for page, text in _written.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Leads links out of docs/ to the page that stands for the file, or makes them plain text where there is none."""
    here = page.file.src_uri
    if _RANKED_LOWER.match(here):
        page.meta.setdefault("search", {"boost": 0.5})
    document = _ORIGINS.get(here, f"docs/{here}")

    def lead(match: re.Match[str]) -> str:
        text, target = match.groups()
        name, _, fragment = target.partition("#")
        if not name or re.match(r"[a-z]+:", target):
            return match.group()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(document), name))
        if path in OUTSIDE:
            led = OUTSIDE[path]
        elif path.startswith("docs/"):
            led = path.removeprefix("docs/")
            if (ROOT / path).is_dir():
                return text
        else:
            return text
        return f"[{text}]({posixpath.relpath(led, posixpath.dirname(here) or '.')}{'#' + fragment if fragment else ''})"

    return _outside_of_code(markdown, lambda part: _LINK.sub(lead, part))


def _outside_of_code(markdown: str, change: Any) -> str:
    """The text with a change made to what is in no block of code."""
    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [change(markdown[end : fence.start()]), fence.group()]
        end = fence.end()
    return "".join([*parts, change(markdown[end:])])


def _written_by_programs() -> dict[str, str]:
    """The references that the installed Oxiray writes of itself: it needs an interpreter of its own."""
    python = os.environ.get("OXIRAY_SITE_PYTHON", str(ROOT / ".venv" / "bin" / "python"))
    done = subprocess.run([python, str(ROOT / "scripts" / "site-references")], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the references cannot be written by {python}, run `make venv` first: {done.stderr.strip()}")
    pages: dict[str, str] = json.loads(done.stdout)
    return pages
