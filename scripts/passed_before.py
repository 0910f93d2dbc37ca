"""What passed before, with the same program and the same files: `scripts/run-tests` does not run it again.

A test file is known by its content, and by all that it may read beside it: every file of the repository but other test
files, the wheels that were installed, the packages of its environment, and the machine. Whoever changes one test file runs
that one; whoever changes anything else runs everything. Failures are never remembered.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Count:
    """How many tests passed, and how many said why they are skipped."""

    passed: int = 0
    skipped: int = 0


def is_test_file(path: str) -> bool:
    """Whether nothing but its own tests reads the file."""
    return path.startswith("tests/") and Path(path).name.startswith("test_") and path.endswith(".py")


def digest_of(parts: Iterable[bytes]) -> str:
    """One digest of several parts, each with its length: no two lists of parts are alike."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "little"))
        whole.update(part)
    return whole.hexdigest()


def files_of(root: Path) -> list[str] | None:
    """Paths of what the repository holds, what is not yet committed included; None where there is no git."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return sorted(path for path in os.fsdecode(listed).split("\0") if path and (root / path).is_file())


def packages_of(interpreter: str) -> list[str]:
    """Names and versions of what is installed where the interpreter is."""
    libraries = Path(interpreter).parent.parent.glob("lib/python*/site-packages/*.dist-info")
    return sorted(path.name for path in libraries)


class PassedBefore:
    """The memory of one checkout, in a file that holds a digest and a count for each test file or step."""

    def __init__(self, root: Path, file: Path, again: bool) -> None:
        self.root, self.file, self.again = root, file, again
        self.entries: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, str] = {}
        files = files_of(root)
        #: The digest of all that any test may read; None where nothing can be remembered.
        self.common: str | None = None
        if files is None:
            return
        shared = [path for path in files if not is_test_file(path)]
        wheels = sorted([*root.glob("dist/oxiray-*.whl"), *root.glob(".build/alias/*.whl")])
        machine = [platform.release(), platform.machine(), platform.python_version(), str(os.geteuid()), str(os.cpu_count())]
        self.common = digest_of(
            [
                *(part for path in shared for part in (path.encode(), (root / path).read_bytes())),
                *(wheel.read_bytes() for wheel in wheels),
                *(word.encode() for word in machine),
            ]
        )
        if file.exists():
            self.entries = json.loads(file.read_text())

    def count(self, name: str, interpreter: str | None = None) -> Count | None:
        """What passed, where nothing has changed since."""
        if self.common is None:
            return None
        # What the file holds now is what is about to run: an edit in the meantime is not taken for it.
        place = self._place(name, interpreter)
        self.keys[place] = self._key(name, interpreter)
        entry = self.entries.get(place)
        if self.again or entry is None or entry["key"] != self.keys[place]:
            return None
        return Count(passed=int(entry["passed"]))

    def remember(self, name: str, count: Count, interpreter: str | None = None) -> None:
        """All tests of a file, or of a step, that `count` knew nothing of have passed.

        Where some were skipped, what they lacked may be there the next time: that is not remembered.
        """
        if self.common is None or count.skipped:
            return
        place = self._place(name, interpreter)
        self.entries[place] = {"key": self.keys[place], "passed": count.passed}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self.entries, indent=0, sort_keys=True))
        new.replace(self.file)

    def _place(self, name: str, interpreter: str | None) -> str:
        return f"{name} by {Path(interpreter).parent.parent.name}" if interpreter else name

    def _key(self, name: str, interpreter: str | None) -> str:
        assert self.common is not None
        path = self.root / name
        own = path.read_bytes() if path.is_file() else b""
        packages = packages_of(interpreter) if interpreter else []
        return digest_of([self.common.encode(), name.encode(), own, *(package.encode() for package in packages)])
