"""What `make test` need not run again: nothing that could have read what has changed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
TESTS = ("tests/a/test_one.py", "tests/a/test_two.py")


def script() -> Any:
    spec = importlib.util.spec_from_file_location("passed_before", ROOT / "scripts" / "passed_before.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["passed_before"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with two test files, a helper, a source, a wheel that git ignores, and an environment."""
    for name in (*TESTS, "tests/shared/helper.py", "python/front.py", "dist/oxiray-1.whl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / ".venv/lib/python3.11/site-packages/numpy-2.dist-info").mkdir(parents=True)
    (tmp_path / ".gitignore").write_text("dist\n.venv\n.build\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


class Runs:
    """Runs of the tests of a checkout, one after the other."""

    def __init__(self, root: Path) -> None:
        self.root, self.interpreter = root, str(root / ".venv/bin/python")

    def start(self, again: bool = False) -> Any:
        return script().PassedBefore(self.root, self.root / ".build" / "passed.json", again=again)

    def known(self, **options: bool) -> list[str]:
        run = self.start(**options)
        return [name for name in TESTS if run.count(name, self.interpreter) is not None]

    def all_pass(self) -> None:
        run = self.start()
        for name in TESTS:
            if run.count(name, self.interpreter) is None:
                run.remember(name, script().Count(passed=3), self.interpreter)


@pytest.fixture
def runs(checkout: Path) -> Runs:
    runs = Runs(checkout)
    assert runs.known() == []
    runs.all_pass()
    assert runs.known() == list(TESTS)
    return runs


def test_the_count_is_that_of_the_run_that_passed(runs: Runs) -> None:
    assert runs.start().count(TESTS[0], runs.interpreter).passed == 3


def test_a_test_file_that_changes_is_run_alone(runs: Runs) -> None:
    (runs.root / TESTS[0]).write_text("changed")
    assert runs.known() == [TESTS[1]]


@pytest.mark.parametrize("name", ["tests/shared/helper.py", "python/front.py", "dist/oxiray-1.whl", "docs/new.md"])
def test_whatever_else_changes_has_all_run(runs: Runs, name: str) -> None:
    (runs.root / name).parent.mkdir(parents=True, exist_ok=True)
    (runs.root / name).write_text("changed")
    assert runs.known() == []


def test_another_version_of_a_library_has_all_run(runs: Runs) -> None:
    libraries = runs.root / ".venv/lib/python3.11/site-packages"
    (libraries / "numpy-2.dist-info").rename(libraries / "numpy-3.dist-info")
    assert runs.known() == []


def test_all_run_where_that_is_asked_for(runs: Runs) -> None:
    assert runs.known(again=True) == []


def test_what_was_edited_while_it_ran_is_not_known(runs: Runs) -> None:
    (runs.root / TESTS[0]).write_text("changed")
    run = runs.start()
    assert run.count(TESTS[0], runs.interpreter) is None
    (runs.root / TESTS[0]).write_text("changed once more while it ran")
    run.remember(TESTS[0], script().Count(passed=3), runs.interpreter)
    assert runs.known() == [TESTS[1]]


def test_skipped_tests_are_tried_again(runs: Runs) -> None:
    (runs.root / TESTS[0]).write_text("changed")
    run = runs.start()
    assert run.count(TESTS[0], runs.interpreter) is None
    run.remember(TESTS[0], script().Count(passed=2, skipped=1), runs.interpreter)
    assert runs.known() == [TESTS[1]]


def test_nothing_is_known_outside_of_a_repository(tmp_path: Path) -> None:
    (tmp_path / TESTS[0]).parent.mkdir(parents=True)
    (tmp_path / TESTS[0]).write_text("one")
    run = script().PassedBefore(tmp_path, tmp_path / "passed.json", again=False)
    run.count(TESTS[0])
    run.remember(TESTS[0], script().Count(passed=1))
    assert run.count(TESTS[0]) is None and not (tmp_path / "passed.json").exists()
