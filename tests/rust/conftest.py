"""The Rust program that these tests run, built where it is not there yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cargo_built import cargo_built
from oxiray._cli import native_binary


@pytest.fixture(scope="session")
def languages() -> Iterator[Path]:
    """The example `languages`, which cargo builds with the Rust tests; it starts the daemon that Python programs start."""
    built = cargo_built("examples/languages", "-p", "oxiray", "--example", "languages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OXIRAY_BINARY", str(native_binary()))
        yield built
