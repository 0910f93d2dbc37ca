"""The pages of the documentation's site, from its own navigation, and the blocks of code that only other tests can run."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import snippets

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
#: Tests with PyTorch, and with Ray's own libraries, which have environments of their own.
WITH_TORCH = "tests/train/test_pages.py"
WITH_LIBRARIES = "tests/libraries/train_data_cases.py"
WITH_RUST = "tests/rust/test_page.py"
#: Blocks of Python that the environment of most tests cannot run: the page, what the block has, and the tests that run it.
ELSEWHERE = [
    ("docs/collectives.md", "from ray.util import collective", WITH_TORCH),
    ("docs/collectives.md", "collective.create_collective_group(", WITH_TORCH),
    ("docs/device-objects.md", 'tensor_transport="auto"', WITH_TORCH),
    ("docs/runtime-environments.md", '{"preload": ["torch"]}', WITH_TORCH),
    ("docs/train.md", "result = TorchTrainer(", WITH_TORCH),
    ("docs/train.md", "squares = ray.data.range(1000)", WITH_LIBRARIES),
    ("docs/rust.md", 'rust.program("./target/release/app")', WITH_RUST),
]


def from_navigation() -> dict[str, Path]:
    """Where the text of each page of the site lies in the repository; those that programs write are not among them."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Leaves out what names Python's objects: it is not part of the navigation."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    navigation = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"]
    outside = {page: ROOT / document for document, page in _documents_outside().items() if page != "index.md"}
    decisions = [f"decisions/{path.name}" for path in (DOCS / "decisions").glob("*.md")]
    listed = [*_leaves(navigation), *decisions]
    return {page: outside.get(page, DOCS / page) for page in listed if page in outside or (DOCS / page).exists()}


def _leaves(entry: Any) -> list[str]:
    """The pages that an entry of the navigation has, however deep."""
    if isinstance(entry, str):
        return [entry]
    return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in _leaves(part)]


def _documents_outside() -> dict[str, str]:
    """What scripts/site_hooks.py says of documents that do not lie in docs/; only mkdocs can import it."""
    hooks = ast.parse((ROOT / "scripts" / "site_hooks.py").read_text())
    for statement in hooks.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "OUTSIDE":
            documents: dict[str, str] = ast.literal_eval(statement.value)
            return documents
    raise AssertionError("scripts/site_hooks.py has no OUTSIDE")


def python_of(page: Path) -> list[snippets.Block]:
    return [block for block in snippets.blocks(page.read_text()) if block.language == "python"]


def who_runs(page: Path, block: snippets.Block) -> str | None:
    """The tests that run a block, where it is not those of the documentation."""
    name = page.relative_to(ROOT).as_posix()
    return next((tests for named, part, tests in ELSEWHERE if named == name and part in block.text), None)


def run_by(tests: str) -> list[Path]:
    """The pages of which some tests run blocks."""
    return [ROOT / page for page in dict.fromkeys(page for page, _, by in ELSEWHERE if by == tests)]
