"""Calls of the Rust API beside the same calls of Python's, and beside a bare round trip over a unix socket.

Prints a table and, with `--write`, keeps it as a document. Exits non-zero where something failed, and with `--check` also
where a row fell short of what is wanted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from compare import FOREIGN, machine, measure  # noqa: E402  (it lies beside this file, not in a package)

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 300
#: Row of `examples/calls.rs`, what it is, and the Python case that does the same.
ROWS = {
    "task-sync": ("task, one after the other", "task-sync"),
    "tasks-in-flight": ("tasks, 5,000 in flight", "tasks-in-flight"),
    "actor-sync": ("actor call, one after the other", "actor-sync"),
    "actor-in-flight": ("actor calls, 10,000 in flight", "actor-in-flight"),
    "argument-mib": ("task with an argument of 1 MiB, one after the other", "task-1mib-argument"),
}
SOCKET = "unix-socket"
#: How many times faster than Python's each row is wanted to be.
WANTED = 2.0
#: How many times as long as a socket's round trip a synchronous actor call may take.
SOCKET_FACTOR = 4.0


def rust(program: Path, daemon: Path) -> dict[str, float]:
    """Every row once, in a session of its own."""
    folder = tempfile.mkdtemp(prefix="oxb-")
    environment = {key: value for key, value in os.environ.items() if not FOREIGN.match(key)}
    environment |= {"OXIRAY_TMPDIR": folder, "OXIRAY_BINARY": str(daemon)}
    try:
        done = subprocess.run(
            [program], env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=True, cwd=folder
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    lines = [line.removeprefix("RESULT ") for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return {row["name"]: float(row["value"]) for row in map(json.loads, lines)}


def built(crate: str, kind: str, name: str) -> Path:
    """A program of this repository, built where it is not up to date."""
    command = ["cargo", "build", "--release", "--locked", "--quiet", "-p", crate, kind, name]
    subprocess.run(command, cwd=ROOT, check=True)
    folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
    return folder / "examples" / name if kind == "--example" else folder / name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="a Python with Oxiray and its `ray` alias")
    parser.add_argument("--program", type=Path, help="the example `calls`; built where it is left out")
    parser.add_argument("--daemon", type=Path, help="the program `oxiray` that it starts; built where it is left out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="fail where a row falls short of what is wanted")
    parser.add_argument("--write", type=Path, help="write the table to this document")
    arguments = parser.parse_args()
    program = arguments.program or built("oxiray", "--example", "calls")
    daemon = arguments.daemon or built("oxiray-cli", "--bin", "oxiray")
    ours: dict[str, list[float]] = {}
    pythons: dict[str, list[float]] = {}
    for number in range(arguments.rounds):
        for name, value in rust(program, daemon).items():
            ours.setdefault(name, []).append(value)
        for name, (_, case) in ROWS.items():
            pythons.setdefault(name, []).append(float(str(measure(arguments.python, case)["value"])))
        print(f"round {number + 1} of {arguments.rounds} is done", flush=True)
    medians = {name: statistics.median(values) for name, values in ours.items()}
    lines = ["| case | Rust | Python | ratio | wanted, at least | met |", "|---|---:|---:|---:|---:|---|"]
    short = []
    for name, (title, _) in ROWS.items():
        python = statistics.median(pythons[name])
        times = medians[name] / python
        met = times >= WANTED
        short += [] if met else [title]
        verdict = "yes" if met else "**no**"
        lines.append(f"| {title} | {medians[name]:,.0f}/s | {python:,.0f}/s | {times:.1f}× | {WANTED:g}× | {verdict} |")
    factor = medians[SOCKET] / medians["actor-sync"]
    met = factor <= SOCKET_FACTOR
    short += [] if met else ["a synchronous actor call beside a socket"]
    lines += [
        "",
        f"A round trip of one byte between two processes over a unix socket: {1e6 / medians[SOCKET]:.1f} µs. "
        f"A synchronous actor call: {1e6 / medians['actor-sync']:.1f} µs, {factor:.1f} times as long; at most "
        f"{SOCKET_FACTOR:g} are wanted{'' if met else ', and **that is not met**'}.",
    ]
    heading = [
        "# The Rust API beside Python's",
        "",
        f"`crates/oxiray/examples/calls.rs` and the same cases of `benches/cases.py`, alternating; medians of "
        f"{arguments.rounds} rounds. Written by `make bench`.",
        "",
        *machine(),
        "",
    ]
    print("\n".join(lines))
    if arguments.write:
        arguments.write.write_text("\n".join([*heading, *lines]) + "\n")
    return 1 if arguments.check and short else 0


if __name__ == "__main__":
    sys.exit(main())
