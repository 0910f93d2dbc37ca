"""A tour of the programs Oxiray is for: runs the seeds' programs as they stand and prints what each shows.

Ends with a drawing of which process holds which device. Exits non-zero where a program showed something else than its
document says.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

TOUR = Path(__file__).resolve().parent
sys.path.insert(0, str(TOUR.parent / "programs"))

import documented  # noqa: E402  (it lies beside the programs, not in a package)

STOPS = {
    "Seven families of accelerators": [
        "seed_003/devices_nvidia.py",
        "seed_003/devices_amd.py",
        "seed_003/devices_intel.py",
        "seed_003/devices_neuron.py",
        "seed_003/devices_tpu.py",
        "seed_003/devices_gaudi.py",
        "seed_003/devices_ascend.py",
    ],
    "Actors and tasks, and the ids they are told": [
        "seed_000/get_gpu_ids.py",
        "seed_001/gpu_method.py",
        "seed_001/gpu_actor.py",
        "seed_001/gpu_actor_tensorflow.py",
        "seed_000/neuron_core_accelerator.py",
    ],
    "Fractions": [
        "seed_003/packing.py",
        "seed_003/fraction_nvidia.py",
        "seed_003/fraction_refused.py",
    ],
    "A clean process for every holder": [
        "seed_003/leak.py",
        "seed_003/leak_reuse.py",
    ],
    "A device of a certain type": [
        "seed_003/accelerator_type.py",
        "seed_003/accelerator_type_detected.py",
    ],
    "What can never run": [
        "seed_001/actor_too_large.py",
    ],
}


def show(lines: list[str]) -> None:
    """Print lines under a program's title."""
    for line in lines:
        print(f"       {line}")


GROUPS = "groups: [{name: gpu, max: 5, resources: {CPU: 3, GPU: 1}, idle_timeout_s: 0.5}]"


def with_head(program: str, *options: str, groups: str = "") -> bool:
    """Start a machine, run a program there, and show what it prints."""
    folder = Path(tempfile.mkdtemp(prefix="oxi-"))
    environment = documented.clean_environment(folder, {})
    oxiray = Path(sys.executable).parent / "oxiray"
    if groups:
        (folder / "groups.yaml").write_text(groups)
        options = (*options, f"--autoscale={folder / 'groups.yaml'}")
    try:
        commands: list[list[str | Path]] = [
            [oxiray, "start", "--head", *options],
            [sys.executable, TOUR / program],
        ]
        for command in commands:
            outcome = documented.execute(command, environment)
            if outcome.status != 0:
                show([f"{' '.join(map(str, command))} failed:", *outcome.lines, *outcome.errors])
                return False
        show(outcome.lines)
        return True
    finally:
        documented.execute([oxiray, "stop"], environment)
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Run every stop of the tour."""
    began = time.monotonic()
    count = sum(map(len, STOPS.values()))
    print(f"Oxiray: {count} programs written for Ray, each run as it stands, with `import ray`.\n")
    number, wrong = 0, []
    for heading, names in STOPS.items():
        print(f"== {heading}")
        for name in names:
            number += 1
            program = documented.load(documented.PROGRAMS / name)
            outcome = documented.run(program)
            print(f"{number:>3}. {program.title}  [tests/programs/{name}, {outcome.seconds:.2f} s]")
            show(outcome.lines)
            found = documented.differences(program, outcome)
            if found:
                wrong.append(name)
                show([f"NOT AS DOCUMENTED: {line}" for line in found] + outcome.errors[-10:])
        print()
    print("== Which process holds which device: four GPUs, four holders")
    if not with_head("holders.py", "--num-gpus=4"):
        wrong.append("the drawing")
    print("\n== A cluster that grows: a group of up to five machines with a GPU, none of them there")
    if not with_head("growing.py", "--num-cpus=1", groups=GROUPS):
        wrong.append("the cluster that grows")
    print(f"\n{number} programs in {time.monotonic() - began:.1f} s, {len(wrong)} not as documented")
    for name in wrong:
        print(f"  not as documented: {name}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
