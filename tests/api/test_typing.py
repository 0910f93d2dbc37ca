"""The type stubs: what a user's program may rely on, and what a type checker must refuse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("typing_program.py")
#: Modules whose types are told by the alias alone.
OF_THE_ALIAS = """
from ray.actor import ActorHandle

def shown(counter: ActorHandle[CounterObject]) -> ray.ObjectRef[Any]:
    return counter.add.remote(1)
"""
WRONG = """
import oxiray as ray

@ray.remote
def double(x: int) -> int:
    return 2 * x

double.remote("three")
double.options(num_cpu=1)
text: str = ray.get(double.remote(1))
ray.init(num_cpus="two")
"""


def mypy(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_program_passes_under_either_name(tmp_path: Path) -> None:
    renamed = tmp_path / "under_ray.py"
    text = PROGRAM.read_text()
    renamed.write_text(text.replace("import oxiray as ray", "import ray").replace("from oxiray.", "from ray.") + OF_THE_ALIAS)
    for program in (PROGRAM, renamed):
        done = mypy(f"--cache-dir={tmp_path / 'cache'}", str(program))
        assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_wrong_types_are_refused(tmp_path: Path) -> None:
    program = tmp_path / "wrong.py"
    program.write_text(WRONG)
    done = mypy(f"--cache-dir={tmp_path / 'cache'}", str(program))
    lines = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert lines == {8, 9, 10, 11}, done.stdout + done.stderr
