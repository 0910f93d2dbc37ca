"""Every program of the seeds, run through `import ray` as its document prints it, shows what its document says."""

from __future__ import annotations

import documented
import pytest

PROGRAMS = documented.all_programs()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program_shows_what_its_document_says(program: documented.Program) -> None:
    outcome = documented.run(program)
    found = documented.differences(program, outcome)
    assert not found, "\n".join([*found, "--- its standard error:", *outcome.errors[-30:]])


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program_is_documented(program: documented.Program) -> None:
    seed = program.path.parent.name.removeprefix("seed_")
    assert program.title.startswith(f"Seed {seed}: "), program.title
    assert program.expected, "a program without a documented outcome tests nothing"


def outcome(lines: list[str], status: int = 0) -> documented.Outcome:
    return documented.Outcome(status, lines, [], 0.0)


def test_processes_may_come_in_any_order_but_must_be_as_many() -> None:
    program = documented.Program(
        documented.PROGRAMS / "seed_000" / "any.py", "", {}, ["(A pid=1) x", "(A pid=2) x", "(A pid=2) y"]
    )
    assert not documented.differences(program, outcome(["(A pid=7) x", "(A pid=9) x", "(A pid=7) y"]))
    assert documented.differences(program, outcome(["(A pid=7) x", "(A pid=7) x", "(A pid=7) y"]))
    assert documented.differences(program, outcome(["(A pid=7) x", "(A pid=9) x", "(A pid=7) y", "more"]))
    assert documented.differences(program, outcome(["(A pid=7) x", "(A pid=9) x", "(A pid=7) y"], status=1))
