"""Reads the seeds' programs, runs them, and compares what they show with what their documents say.

A program is one runnable file. Its docstring's first line says what it shows; two blocks may follow, each a heading
and indented lines:

    ENVIRONMENT   variables it is run with, `NAME=value`; a value starting with `tests/` is a path in the repository
    EXPECTED      what it prints; `(GPUActor pid=52420)` stands for any process id, but the same number for the same
                  process and different numbers for different ones

Lines of one process keep their order; processes may be shown in any order, since they run side by side.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent
ROOT = PROGRAMS.parent.parent
STAND_INS = PROGRAMS / "stand_ins"
HEADINGS = ("ENVIRONMENT", "EXPECTED")
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
WORKER_LINE = re.compile(r"^\((?P<name>[^()]+?) pid=(?P<pid>\d+)(?:, ip=[^)]*)?\) (?P<text>.*)$")
# What a session must not inherit from whoever runs the tests: it would join another cluster or see other devices.
FOREIGN = re.compile(
    r"^(RAY_|OXIRAY_(?!BINARY)|CUDA_VISIBLE|ROCR_VISIBLE|HIP_VISIBLE|ZE_AFFINITY|ONEAPI_DEVICE|NEURON_RT_|TPU_|"
    r"HABANA_VISIBLE|ASCEND_RT_)"
)


@dataclass(frozen=True)
class Program:
    """One file, and what its docstring says of it."""

    path: Path
    title: str
    environment: dict[str, str]
    expected: list[str]

    @property
    def name(self) -> str:
        return str(self.path.relative_to(PROGRAMS))


@dataclass(frozen=True)
class Outcome:
    """What a run showed; no status where it did not end in time."""

    status: int | None
    lines: list[str]
    errors: list[str]
    seconds: float


def load(path: Path) -> Program:
    """Read a program's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    lines = text.splitlines()
    blocks: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines[1:]:
        if line in HEADINGS:
            current = blocks.setdefault(line, [])
        elif current is not None and line.startswith("    "):
            current.append(line[4:])
        elif line:
            current = None
    environment = dict(line.split("=", 1) for line in blocks.get("ENVIRONMENT", []))
    return Program(path, lines[0] if lines else "", environment, blocks.get("EXPECTED", []))


def all_programs() -> list[Program]:
    """Every program of every seed, in a fixed order."""
    return [load(path) for path in sorted(PROGRAMS.glob("seed_*/*.py"))]


def clean_environment(folder: Path, extra: dict[str, str]) -> dict[str, str]:
    """This environment without what would reach into the session, its own temporary folder, and `extra`."""
    kept = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
    kept |= {
        "RAY_TMPDIR": str(folder),
        # Where training keeps its runs unless it is told.
        "HOME": str(folder),
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": str(STAND_INS),
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
        # `print` writes a line in two pieces where nothing is buffered, and a line of a worker's may come between them.
        "PYTHONUNBUFFERED": "",
    }
    return kept | {name: str(ROOT / value) if value.startswith("tests/") else value for name, value in extra.items()}


def run(program: Program, deadline_s: float = 100, python: str = sys.executable) -> Outcome:
    """Run a program in a session of its own."""
    # Not under the test's own folder: a unix socket's path has room for 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="oxi-"))
    try:
        return execute([python, program.path], clean_environment(folder, program.environment), deadline_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def execute(command: Sequence[str | Path], environment: dict[str, str], deadline_s: float = 100) -> Outcome:
    """Run a command to its end, or end it at the deadline.

    Its output goes to files: through a pipe, a process that it left behind would be waited for as well.
    """
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        began = time.monotonic()
        process = subprocess.Popen(
            [str(word) for word in command], env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors
        )
        status: int | None
        try:
            status = process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = None
        seconds = time.monotonic() - began
        output.seek(0)
        errors.seek(0)
        return Outcome(status, plain_lines(output.read()), plain_lines(errors.read()), seconds)


def plain_lines(text: str) -> list[str]:
    """Lines without colours, trailing blanks and empty lines."""
    return [line.rstrip() for line in ESCAPES.sub("", text).splitlines() if line.strip()]


def by_process(lines: list[str]) -> tuple[list[str], Counter[tuple[str, tuple[str, ...]]]]:
    """The driver's own lines, and per worker process its name and lines with the process id taken away."""
    driver: list[str] = []
    workers: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        match = WORKER_LINE.match(line)
        if match is None:
            driver.append(line)
        else:
            workers.setdefault((match["name"], match["pid"]), []).append(match["text"])
    return driver, Counter((name, tuple(texts)) for (name, _), texts in workers.items())


def differences(program: Program, outcome: Outcome) -> list[str]:
    """What the run showed other than its document says; empty where they agree."""
    found = []
    expected_driver, expected_workers = by_process(program.expected)
    driver, workers = by_process(outcome.lines)
    if driver != expected_driver:
        found.append(f"the driver printed {driver}, expected {expected_driver}")
    for (name, texts), count in (expected_workers - workers).items():
        found.append(f"{count} process(es) `{name}` did not print {list(texts)}")
    for (name, texts), count in (workers - expected_workers).items():
        found.append(f"{count} process(es) `{name}` printed {list(texts)}, which was not expected")
    if outcome.status is None:
        found.append(f"it did not end within {outcome.seconds:.0f} s")
    elif outcome.status != 0:
        found.append(f"it ended with status {outcome.status}")
    return found
