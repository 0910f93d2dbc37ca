"""The Rust program that these tests run, built where it is not there yet."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from oxiray._cli import native_binary

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="session")
def languages() -> Iterator[Path]:
    """The example `languages`, which cargo builds with the Rust tests; it starts the daemon that Python programs start."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = target / "release" / "examples" / "languages"
    sources = max(path.stat().st_mtime for path in (ROOT / "crates").rglob("*.rs"))
    if not built.exists() or built.stat().st_mtime < sources:
        command = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "oxiray", "--example", "languages"]
        subprocess.run(command, cwd=ROOT, check=True, timeout=1800)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OXIRAY_BINARY", str(native_binary()))
        yield built
