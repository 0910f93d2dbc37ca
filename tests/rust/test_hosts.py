"""A machine that lacks a Rust program fetches it, by the digest of its content."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hosts import Hosts


def test_a_machine_without_the_program_fetches_it(languages: Path, tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, count=2, lease=20.0)
    try:
        hosts.start(0, "--num-cpus=0")
        hosts.start(1, "--num-cpus=2")
        folder = tmp_path / "shipped"
        folder.mkdir()
        (folder / "words.txt").write_text("from the other machine")
        (folder / "shipped.py").write_text("def words(path):\n    return open(path).read()\n")
        # Workers that run Python are this interpreter.
        environment = os.environ | {"OXIRAY_PYTHON": sys.executable}
        command = hosts.command(0, str(languages), "elsewhere", str(folder))
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180, env=environment)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [
            "elsewhere: true",
            "sum: 1048576",
            "words: from the other machine",
            "in python: from the other machine",
        ]
        programs = [list(hosts.folder(index).rglob("cache/packages/program*")) for index in (0, 1)]
        assert [program.name for program in programs[0]] == [program.name for program in programs[1]]
        assert len(programs[1]) == 1
    finally:
        hosts.end()
