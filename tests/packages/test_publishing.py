"""Every crate that is published is what a registry takes: `cargo publish` packs all in order, and builds each from its package."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.usefixtures("wheels")
@pytest.mark.timeout(3600)
def test_a_dry_run_publishes_all_crates(tmp_path: Path) -> None:
    # In a folder of its own: cargo takes a package of a version that it has built for one that never changes.
    # What is not committed yet is packed as well.
    command = ["cargo", "publish", "--workspace", "--dry-run", "--locked", "--allow-dirty", f"--target-dir={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-8000:]
    uploaded = re.findall(r"^ +Uploading (oxiray[\w-]*) v", done.stderr, re.MULTILINE)
    assert {"oxiray", "oxiray-cli", "oxiray-dashboard"} <= set(uploaded)
    print(f"{len(uploaded)} crates, in this order: {', '.join(uploaded)}")
