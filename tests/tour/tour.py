"""A tour of what Oxiray does: runs short programs that were written for Ray, as they stand, and explains each in a sentence.

Ends with a drawing of which process holds which device, and a cluster that grows. The exit status is 1 where a program
printed something else than its docstring says.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

TOUR = Path(__file__).resolve().parent
sys.path.insert(0, str(TOUR.parent / "programs"))

import documented  # noqa: E402  (it lies beside the programs, not in a package)

WIDTH = 100


@dataclass(frozen=True)
class Chapter:
    """Programs that show one thing, and what a reader has to know before."""

    heading: str
    words: str
    programs: tuple[str, ...] = ()


BEGINNING = """
Oxiray runs programs that were written for Ray. This tour runs {count} short ones without a change: each of them says
`import ray`, and the name `ray` is Oxiray here. A task is one call of a function in another process; an actor is an object
that lives in a process of its own. This machine need not have the GPUs and other accelerators that the programs use:
Oxiray counts those that `ray.init` names, assigns them to processes, and tells each process its own. Indented lines are
what a program printed; `(name pid=...)` in front of a line says which process printed it.
"""

CHAPTERS = [
    Chapter(
        "Seven kinds of accelerators",
        "Each program has two devices of one kind. An actor takes the first and a task the second. Each process is told its "
        "device by the variable that the libraries of the vendor read, so that it can use no other by mistake.",
        (
            "seed_003/devices_nvidia.py",
            "seed_003/devices_amd.py",
            "seed_003/devices_intel.py",
            "seed_003/devices_neuron.py",
            "seed_003/devices_tpu.py",
            "seed_003/devices_gaudi.py",
            "seed_003/devices_ascend.py",
        ),
    ),
    Chapter(
        "Which devices a process may use",
        "`num_gpus=1` reserves a GPU for a task until it returns, and for an actor as long as the actor lives. The program asks "
        "Ray's functions which GPU that is.",
        (
            "seed_000/get_gpu_ids.py",
            "seed_001/gpu_method.py",
            "seed_001/gpu_actor.py",
            "seed_001/gpu_actor_tensorflow.py",
            "seed_000/neuron_core_accelerator.py",
        ),
    ),
    Chapter(
        "Several processes on one GPU",
        "A request may be for a part of a GPU: `num_gpus=0.25` lets four processes share one. Oxiray fills one GPU before it "
        "begins with the next, so that whole ones stay free.",
        (
            "seed_003/packing.py",
            "seed_003/fraction_nvidia.py",
            "seed_003/fraction_refused.py",
        ),
    ),
    Chapter(
        "Memory of a GPU that a task does not free",
        "A process keeps the memory of its GPU until it ends. Oxiray therefore ends the process after each GPU task, unless "
        "`max_calls=0` asks for the same process again. A stand-in for TensorFlow says when it takes a GPU.",
        (
            "seed_003/leak.py",
            "seed_003/leak_reuse.py",
        ),
    ),
    Chapter(
        "A GPU of a certain model",
        "`accelerator_type=` asks for a machine with that model. The second program runs as if on a machine with eight H100s, "
        "of which Oxiray's repository has a recording.",
        (
            "seed_003/accelerator_type.py",
            "seed_003/accelerator_type_detected.py",
        ),
    ),
    Chapter(
        "A request that no machine can meet",
        "Ray waits without end for a machine that is large enough. Oxiray raises an exception that says what was asked for and "
        "what there is.",
        ("seed_001/actor_too_large.py",),
    ),
]
DRAWING = Chapter(
    "Who holds which GPU",
    "Four actors hold parts of four GPUs. The program draws what each actor says of itself, and then runs `oxiray status`, "
    "which shows the same for any cluster.",
)
GROWTH = Chapter(
    "A cluster that grows with its work",
    "The cluster begins without a GPU, and may start up to five nodes with one each. Two actors ask for GPUs and bring two "
    "nodes; when they are gone, so are the nodes. Each line has the time and the number of GPUs.",
)


def show(lines: list[str]) -> None:
    """Print what a program printed."""
    for line in lines:
        print(f"       {line}")


def begin(number: int, chapter: Chapter) -> None:
    """Print what comes, and why."""
    print(f"\n{number}. {chapter.heading}\n")
    print(textwrap.fill(chapter.words, WIDTH, initial_indent="   ", subsequent_indent="   ", break_on_hyphens=False))


def in_words(title: str) -> str:
    """A program's title without the number of the document that it is from."""
    words = title.partition(": ")[2]
    return words[0].upper() + words[1:]


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


def run(name: str) -> list[str]:
    """Run a program and show what it prints; returns how that differs from what it should be."""
    program = documented.load(documented.PROGRAMS / name)
    outcome = documented.run(program)
    print(f"\n   {in_words(program.title)}")
    print(f"   python tests/programs/{name}")
    show(outcome.lines)
    found = documented.differences(program, outcome)
    if found:
        show([f"This is not as documented: {line}" for line in found] + outcome.errors[-10:])
    else:
        print(f"   This is what it should print. It took {outcome.seconds:.2f} s.")
    return found


def main() -> int:
    """Run every stop of the tour."""
    began = time.monotonic()
    count = sum(len(chapter.programs) for chapter in CHAPTERS)
    print(textwrap.fill(BEGINNING.strip().format(count=count), WIDTH, break_on_hyphens=False))
    wrong = []
    for number, chapter in enumerate(CHAPTERS, 1):
        begin(number, chapter)
        wrong += [f"tests/programs/{name}" for name in chapter.programs if run(name)]
    begin(len(CHAPTERS) + 1, DRAWING)
    print()
    if not with_head("holders.py", "--num-gpus=4"):
        wrong.append("tests/tour/holders.py")
    begin(len(CHAPTERS) + 2, GROWTH)
    print()
    if not with_head("growing.py", "--num-cpus=1", groups=GROUPS):
        wrong.append("tests/tour/growing.py")
    seconds = time.monotonic() - began
    if wrong:
        print(f"\n{len(wrong)} of {count + 2} programs did not print what they should: {', '.join(wrong)}")
        return 1
    print(f"\nAll {count + 2} programs printed what they should, in {seconds:.0f} s.")
    print("Next: docs/first-steps.md has a first program of your own, and docs/coming-from-ray.md says what differs from Ray.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
