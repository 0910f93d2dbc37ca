"""docs/rust.md: its blocks, as the example `documented`, run and print what the page says, and so does its program in Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import site_pages
import snippets
from cargo_built import cargo_built

#: How long a program may take on a machine that is busy with other things, in seconds.
LIMIT = 120


@pytest.fixture(scope="module")
def documented() -> Path:
    """The example that has the blocks of the page."""
    return cargo_built("examples/documented", "-p", "oxiray", "--example", "documented")


def without_pids(text: str) -> list[str]:
    """Lines with `N` for process ids, sorted: workers print when they do."""
    return sorted(re.sub(r"pid=\d+", "pid=N", line) for line in text.splitlines())


def test_the_blocks_of_rust_do_what_the_page_says(documented: Path, languages: Path, tmp_path: Path) -> None:
    for name, content in {
        "data/raw.txt": "raw",
        "models/small/weights.txt": "0.5",
        "scripts/clean.py": "def lines(path):\n    return open(path).read().splitlines()\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(content)
    # Calls run in the folder that the job ships, or in the one that they name.
    (tmp_path / "scripts" / "raw.txt").write_text("one\ntwo\n")
    foreign = ("RAY_ADDRESS", "RAY_TMPDIR", "CUDA_VISIBLE_DEVICES")
    environment = {name: value for name, value in os.environ.items() if name not in foreign}
    environment |= {"OXIRAY_TMPDIR": str(tmp_path), "OXIRAY_PYTHON": sys.executable, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([documented], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    hosts = Path("/etc/hosts").read_text()
    [of_devices] = re.findall(r"```text\n(\(GpuActor .*?)```", (site_pages.DOCS / "rust.md").read_text(), re.DOTALL)
    others = """\
scored: 1 texts by 0.5, fast
cleaned: ["one", "two"]
embed: [1.0, 4.0]
embed: there is no text
split: [0.25, 0.125] [0.75]
fetch: 16 bytes
batches: 6, the last [6.0, 6.0, 6.0]
norms: 1448.15
trained: 1
root: 1.4142135623730951, content: ["apple"], rows: 3
"""
    assert without_pids(done.stdout) == without_pids("\n".join([hosts.rstrip("\n"), of_devices.rstrip("\n"), others]))


@pytest.mark.parametrize("page", site_pages.run_by(site_pages.WITH_RUST), ids=lambda page: page.name)
def test_python_calls_what_the_page_says(page: Path, documented: Path, languages: Path, tmp_path: Path) -> None:
    program = tmp_path / "target" / "release" / "app"
    program.parent.mkdir(parents=True)
    shutil.copy(documented, program)
    found = snippets.failures(page.read_text(), tmp_path, runs=lambda block: site_pages.who_runs(page, block) == site_pages.WITH_RUST)
    assert not found, "\n\n".join(found)
