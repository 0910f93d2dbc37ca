"""What is made again from the same sources, in another folder and at another time, is the same byte for byte."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.mark.timeout(7200)
def test_wheels_are_the_same_from_another_folder(wheels: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.rstrip("\0").split("\0"):
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, other / name)
        # As whoever works in a group has them.
        (other / name).chmod((ROOT / name).stat().st_mode | 0o020)
    for command in (["git", "init", "--quiet"], ["git", "add", "--all"], ["make", "--silent", "wheels"]):
        subprocess.run(command, cwd=other, umask=0o002, check=True)
    first, second = digests(wheels), digests(other / "dist" / "wheels")
    for name, digest in first.items():
        print(f"{digest}  {name}")
    assert len(first) == 3 and first == second
