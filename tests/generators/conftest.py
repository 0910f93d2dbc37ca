"""How to see what is left behind."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from oxiray import _core
from watching import wait_until


def stored_objects() -> int:
    """How many objects the machine keeps, in its store and among the published ones."""
    store = _core.cluster()["store"]
    return int(store["objects"] + store["published"])


@pytest.fixture
def nothing_left(two_cpus: None) -> Iterator[None]:
    """Fails where a test leaves objects behind, in this process or in the store."""
    known, stored = _core.objects_known(), stored_objects()
    yield
    # Errors that were caught hold on to frames, and so to what those refer to.
    gc.collect()
    wait_until(lambda: _core.objects_known() <= known and stored_objects() <= stored)


@pytest.fixture
def journal(tmp_path: Path) -> Callable[[], list[str]]:
    """A file that tasks write to, line by line: call it for the lines so far; its `path` is for the tasks."""
    path = tmp_path / "journal"

    def lines() -> list[str]:
        return path.read_text().split("\n")[:-1] if path.exists() else []

    lines.path = str(path)  # type: ignore[attr-defined]
    return lines
