"""What tests need of cargo: built as the rest of this project is built, and where it lies."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def cargo_built(path: str, *selection: str) -> Path:
    """Has cargo build what `selection` names, and returns `path` below the folder of release builds.

    `scripts/run-tests` has built it before it says so in the variable: cargo, which compiles other things beside the
    tests, would have this caller wait for them.
    """
    built = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / path
    if "OXIRAY_TEST_PROGRAMS" not in os.environ:
        command = ["cargo", "build", "--release", "--locked", "--quiet", *selection]
        subprocess.run(command, cwd=ROOT, check=True, timeout=1800)
    assert built.exists(), f"{built} is missing: cargo build --release --locked {' '.join(selection)}"
    return built
