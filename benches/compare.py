"""Oxiray against Ray, the same script on both: every case in fresh processes, the two alternating, medians compared.

Prints a table and, with `--write`, keeps it as a document. Exits non-zero where a case failed, and with `--check` also
where one fell short of what is wanted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from cases import CASES, SESSION_MARK, Case  # noqa: E402  (it lies beside this file, not in a package)

DEADLINE_S = 120
FOREIGN = re.compile(r"^(RAY_|OXIRAY_|PYTHON|CUDA_VISIBLE|VIRTUAL_ENV)")


class CaseFailed(Exception):
    """A case ended without a result; says what it printed."""


def environment(folder: str, extra: dict[str, str]) -> dict[str, str]:
    """The variables of a program whose session lies in that folder: of this process's only what is not for Ray or Python."""
    kept = {key: value for key, value in os.environ.items() if not FOREIGN.match(key)}
    return kept | {"RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0", SESSION_MARK: uuid.uuid4().hex} | extra


def measure(python: str, name: str, extra: dict[str, str] | None = None) -> dict[str, object]:
    """One case once, in a fresh process and a session of its own."""
    folder = Path(tempfile.mkdtemp(prefix="oxb-"))
    command = [python, str(Path(__file__).parent / "cases.py"), name]
    try:
        done = subprocess.run(
            command, env=environment(str(folder), extra or {}), capture_output=True, text=True, timeout=DEADLINE_S, check=False, cwd=folder
        )
    except subprocess.TimeoutExpired as expired:
        raise CaseFailed(f"no result within {DEADLINE_S} s") from expired
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return json.loads(line.removeprefix("RESULT "))
    raise CaseFailed(f"status {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")


def ratio(case: Case, ours: float, theirs: float) -> float:
    """How many times better ours is."""
    return ours / theirs if case.more_is_better else theirs / ours


def figure(case: Case, value: float) -> str:
    """A value with its unit, to three digits."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    unit = case.unit if case.unit.startswith("/") else f" {case.unit}"
    return f"{value:,.{digits}f}{unit}"


def machine() -> list[str]:
    """The machine this ran on, a line per fact."""
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    memory_kb = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())[1])
    return [
        f"- Machine: {cpu}, {os.cpu_count()} cores, {memory_kb / (1 << 20):.0f} GiB of memory",
        f"- Linux {platform.release()}",
        f"- Python {platform.python_version()}",
        f"- Load when it began: {os.getloadavg()[0]:.1f}",
    ]


def row(name: str, results: dict[str, list[dict[str, object]]]) -> tuple[str, bool]:
    """A case's line of the table, and whether it met what is wanted."""
    case = CASES[name]
    medians = {who: statistics.median([float(str(one["value"])) for one in rounds]) for who, rounds in results.items()}
    cells = [case.title] + [figure(case, medians[who]) if who in medians else "" for who in ("oxiray", "ray")]
    if len(medians) < 2:
        return "| " + " | ".join([*cells, "", f"{case.wanted_ratio:g}×", ""]) + " |", True
    times = ratio(case, medians["oxiray"], medians["ray"])
    met = times >= case.wanted_ratio
    cells += [f"{times:,.1f}×", f"{case.wanted_ratio:g}×", "yes" if met else "**no**"]
    return "| " + " | ".join(cells) + " |", met


def spread(name: str, results: dict[str, list[dict[str, object]]]) -> str:
    """Every round's value, so that a median can be judged."""
    case = CASES[name]
    parts = [
        f"{who} " + ", ".join(figure(case, float(str(one["value"]))) for one in rounds)
        for who, rounds in results.items()
    ]
    return f"- {case.title}: " + "; ".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--oxiray-python", default=sys.executable, help="a Python with Oxiray and its `ray` alias")
    parser.add_argument("--ray-python", default=".build/ray/bin/python", help="a Python with Ray")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", action="append", choices=CASES, help="only these")
    parser.add_argument("--only", choices=["oxiray", "ray"], help="only one of the two")
    parser.add_argument("--check", action="store_true", help="fail where a case falls short of what is wanted")
    parser.add_argument("--write", type=Path, help="write the table to this document")
    arguments = parser.parse_args()
    pythons = {"oxiray": arguments.oxiray_python, "ray": str(Path(arguments.ray_python).absolute())}
    if arguments.only:
        pythons = {arguments.only: pythons[arguments.only]}
    facts, began, failures, short, rows, spreads, versions = machine(), time.monotonic(), [], [], [], [], {}
    for name in arguments.case or CASES:
        results: dict[str, list[dict[str, object]]] = {}
        for number in range(arguments.rounds):
            # Who goes first changes from round to round, so that neither always meets the machine as the other left it.
            for who in sorted(pythons, reverse=number % 2 == 1):
                python = pythons[who]
                try:
                    result = measure(python, name)
                except CaseFailed as failed:
                    failures.append(f"{name} on {who}, round {number + 1}: {failed}")
                    print(f"  FAILED {failures[-1]}", flush=True)
                    continue
                versions[who] = result["version"]
                results.setdefault(who, []).append(result)
                print(
                    f"  {name}, round {number + 1}, {who}: {figure(CASES[name], float(str(result['value'])))}",
                    flush=True,
                )
        if results:
            line, met = row(name, results)
            rows.append(line)
            spreads.append(spread(name, results))
            if not met:
                short.append(name)
            print(line, flush=True)
    table = [
        "| case | Oxiray | Ray | ratio | wanted, at least | met |",
        "|---|---:|---:|---:|---:|---|",
        *rows,
    ]
    document = [
        "# Oxiray against Ray",
        "",
        "One script, `benches/cases.py`, run on both through `import ray`; every case in fresh processes, the two",
        f"alternating, medians of {arguments.rounds} rounds. Written by `make bench`.",
        "",
        *facts,
        f"- Oxiray (its alias answers as Ray {versions.get('oxiray', '—')}) and Ray {versions.get('ray', '—')}",
        f"- {time.monotonic() - began:.0f} s in all",
        "",
        *table,
        "",
        "Every round:",
        "",
        *spreads,
        "",
    ]
    print("\n".join(["", *table]))
    if arguments.write and not failures:
        arguments.write.write_text("\n".join(document))
    for failure in failures:
        print(f"FAILED {failure}")
    return 1 if failures or (arguments.check and short) else 0


if __name__ == "__main__":
    sys.exit(main())
