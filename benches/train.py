"""Training on Oxiray beside Ray 2.60 and torchrun: one loop, two workers on the CPU, medians of fresh programs that alternate.

Prints a table and, with `--write`, keeps it as a document; with `--check`, exits non-zero where something fell short.
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
import time
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from compare import FOREIGN, machine  # noqa: E402  (it lies beside this file, not in a package)

CASES = Path(__file__).parent / "train_cases.py"
TENSOR_CASES = Path(__file__).parent / "tensor_cases.py"
DEADLINE_S = 300
#: What is compared: its key, what it is, its unit, how much better than Ray it has to be (None: as torchrun).
ROWS = (
    ("process_to_step_s", "begin of the program until the first step", "s", None),
    ("cold_s", "`fit()` until the first step, first of the program", "s", 1.0),
    ("warm_s", "`fit()` until the first step, second of the program", "s", 6.0),
    ("warm_fit_s", "a whole `fit()` of 20 steps, second of the program", "s", 1.0),
    ("report_s", "`train.report` without a checkpoint", "s", 200.0),
    ("recovery_s", "a worker's death until the first step of the next", "s", 4.0),
    ("nearest_s", "1 GiB of tensors from actor to actor: `auto`, in Ray `gloo`", "s", 3.0),
    ("nearest_read_s", "the same, until their elements are added up", "s", 1.0),
    ("group_s", "1 GiB of tensors from actor to actor, by `gloo` in both", "s", 1.0),
    ("memory_mb", "memory of all but the workers and the driver, besides what they share with those", "MB", 10.0),
)


def measure(who: str, python: str) -> dict[str, float]:
    """Its programs once."""
    tensors = {} if who == "torchrun" else run(who, python, TENSOR_CASES)
    return run(who, python, CASES) | tensors


def run(who: str, python: str, cases: Path) -> dict[str, float]:
    """One program once, in a session of its own."""
    folder = Path(tempfile.mkdtemp(prefix="oxb-"))
    environment = {key: value for key, value in os.environ.items() if not FOREIGN.match(key)}
    environment |= {
        "OXB_MARK": uuid.uuid4().hex, "RAY_TMPDIR": str(folder), "TMPDIR": str(folder), "HOME": str(folder),
        "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [python, str(cases)]
    if who == "torchrun":
        command = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(cases), "torchrun"]
    environment["OXB_STARTED"] = str(time.time())
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False, cwd=folder
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return dict(json.loads(line.removeprefix("RESULT ")))
    sys.exit(f"{who} gave no result, status {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")


def figure(value: float, unit: str) -> str:
    """A value with its unit, to three digits."""
    if unit == "s" and value < 0.1:
        return f"{value * 1e3:.3g} ms"
    return f"{value:,.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--oxiray-python", default=sys.executable)
    parser.add_argument("--ray-python", required=True, help="an environment with ray[train] and torch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    # Not resolved: the environment is the folder that the link lies in.
    pythons = {
        "oxiray": os.path.abspath(arguments.oxiray_python), "ray": os.path.abspath(arguments.ray_python),
        "torchrun": os.path.abspath(arguments.oxiray_python),
    }  # fmt: skip
    facts, found = machine(), {who: [] for who in pythons}
    for number in range(arguments.rounds):
        for who, python in pythons.items():
            found[who].append(measure(who, python))
            print(f"  round {number + 1}, {who}: {found[who][-1]}", flush=True)

    def median(who: str, key: str) -> float:
        return statistics.median(one[key] for one in found[who])

    table = ["| | Oxiray | Ray | torchrun | than Ray | wanted | met |", "|---|---:|---:|---:|---:|---:|---|"]
    short = []
    for key, name, unit, wanted in ROWS:
        ours, theirs = median("oxiray", key), median("ray", key)
        has_peer = key in found["torchrun"][0]
        peer = median("torchrun", key) if has_peer else None
        is_met = theirs / ours >= wanted if wanted is not None else peer is not None and ours <= peer
        if not is_met:
            short.append(name)
        table.append(
            f"| {name} | {figure(ours, unit)} | {figure(theirs, unit)} | {figure(peer, unit) if peer else '—'} | "
            f"{theirs / ours:,.1f}× | {f'{wanted:g}×' if wanted else 'as torchrun'} | {'yes' if is_met else '**no**'} |"
        )
    document = [
        "# Training: Oxiray, Ray and torchrun",
        "",
        "One loop (`benches/train_cases.py`): 2 workers on the CPU, Gloo, a linear layer wrapped by DistributedDataParallel; and two",
        "actors of which one reads the other's tensors (`benches/tensor_cases.py`). Fresh programs that alternate, medians of",
        f"{arguments.rounds} rounds. Written by `make bench-train`.",
        "",
        *facts,
        "",
        *table,
        "",
    ]
    print("\n".join(["", *table]))
    if arguments.write:
        arguments.write.write_text("\n".join(document))
    return 1 if arguments.check and short else 0


if __name__ == "__main__":
    sys.exit(main())
