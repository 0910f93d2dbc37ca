"""What it costs a task or an actor with a GPU that its use of other devices is watched, or refused by the kernel.

The machine is a recorded one whose device nodes open (as in `tests/runtime/test_fence.py`), so that there is something to refuse and no
GPU is needed; it takes root. The modes are measured by turns, each value in a cluster of its own, and which mode comes first changes from
round to round. Prints a table and, with `--write`, keeps it as a document. Exits non-zero where a mode is not in force.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "shared"))
from cases import CASES  # noqa: E402  (it lies beside this file, not in a package)
from compare import environment, figure, machine, measure, ratio  # noqa: E402
from fenced import recorded  # noqa: E402

#: The modes, each with the tiers that a grant in it may have.
MODES = {"variable": ["variable"], "watch": ["watched"], "fence": ["cgroup", "cgroup1", "landlock"]}
MEASURED = ("gpu-task", "gpu-actor")
#: Prints the tier of a task's grant.
TIER = """
import json, subprocess, ray
from oxiray import _cli

ray.init(num_gpus=1)

@ray.remote(num_gpus=1)
def status(address):
    return subprocess.run([_cli.native_binary(), "status", "--json", "--address", address], capture_output=True, text=True, check=True).stdout

told = json.loads(ray.get(status.remote(ray.get_runtime_context().gcs_address)))
print("TIER", *(holder["isolation"]["tier"] for device in told["devices"] for holder in device["holders"]))
"""


def tier(python: str, extra: dict[str, str]) -> str:
    """What is in force for a task's grant."""
    with tempfile.TemporaryDirectory(prefix="oxb-") as folder:
        done = subprocess.run([python, "-c", TIER], env=environment(folder, extra), capture_output=True, text=True, check=True, cwd=folder)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("TIER "))
    return line.removeprefix("TIER ")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--write", type=Path, help="write the table to this document")
    arguments = parser.parse_args()
    facts, modes = machine(), list(MODES)
    found: dict[str, dict[str, list[float]]] = {name: {mode: [] for mode in modes} for name in MEASURED}
    with tempfile.TemporaryDirectory(prefix="oxb-") as folder:
        host = str(recorded(Path(folder)))
        extra = {mode: {"OXIRAY_HOST_ROOT": host, "OXIRAY_DEVICE_ISOLATION": mode} for mode in modes}
        tiers = {mode: tier(sys.executable, extra[mode]) for mode in modes}
        if wrong := {mode: told for mode, told in tiers.items() if told not in MODES[mode]}:
            print(f"FAILED: asked for and not in force (the mode: the tier of a grant): {wrong}")
            return 1
        for number in range(arguments.rounds):
            for mode in modes[number % len(modes) :] + modes[: number % len(modes)]:
                for name in MEASURED:
                    found[name][mode].append(float(str(measure(sys.executable, name, extra[mode])["value"])))
            print(f"  round {number + 1}: {({name: {mode: round(values[-1], 3) for mode, values in of.items()} for name, of in found.items()})}", flush=True)
    table = ["| | " + " | ".join(f"`{mode}` ({tiers[mode]})" for mode in modes) + " | watch, by variable | fence, by variable |", "|---|" + "---:|" * 5]
    for name, of in found.items():
        case, middle = CASES[name], {mode: statistics.median(values) for mode, values in of.items()}
        cells = [figure(case, middle[mode]) for mode in modes] + [f"{ratio(case, middle[mode], middle['variable']):.3f}×" for mode in modes[1:]]
        table.append(f"| {case.title} | {' | '.join(cells)} |")
    spreads = [f"- {CASES[name].title}, `{mode}`: " + ", ".join(figure(CASES[name], value) for value in values) for name, of in found.items() for mode, values in of.items()]
    document = [
        "# What watching and fencing devices costs", "", f"Two cases of `benches/cases.py` in each mode, by turns, medians of {arguments.rounds} rounds. Written by `make bench-isolation`.",
        "", *facts, "- A recorded machine with two GPUs whose device nodes open", "", *table, "", "Every round:", "", *spreads, "",
    ]  # fmt: skip
    print("\n".join(["", *table]))
    if arguments.write:
        arguments.write.write_text("\n".join(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
