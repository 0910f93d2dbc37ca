"""Clusters for programs that run on Oxiray and on Ray, and the mark of what only one of them does."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

#: Which of the two this interpreter has.
RUNS_ON = "ray" if importlib.util.find_spec("oxiray") is None else "oxiray"
SHARED = {"num_cpus": 4, "num_gpus": 2, "resources": {"part": 8}, "include_dashboard": False}
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# The tests are about behaviours that do not depend on tokens, which Ray's commands make in the user's home.
os.environ.setdefault("RAY_AUTH_MODE", "disabled")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "differs(reason, fails_on='ray'): a behaviour that one of the two has not")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        mark = item.get_closest_marker("differs")
        if mark is None:
            continue
        reason, fails_on = _difference(*mark.args, **mark.kwargs)
        if fails_on == RUNS_ON:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def _difference(reason: str, fails_on: str = "ray") -> tuple[str, str]:
    if fails_on not in ("ray", "oxiray") or not reason:
        raise ValueError(f"`differs` takes a reason, and fails_on='ray' or 'oxiray', not {reason!r} and {fails_on!r}")
    return reason, fails_on


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Ends the cluster that the modules share when the process goes on with another suite, or with nothing."""
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        ray.shutdown()


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster that the modules of a process share."""
    if not ray.is_initialized():
        ray.init(**SHARED)


@pytest.fixture
def start() -> Iterator[Callable[..., Any]]:
    """Starts a cluster with the arguments of `ray.init`; it ends with the test."""
    ray.shutdown()
    yield lambda **options: ray.init(**{"num_cpus": 2, "include_dashboard": False, **options})
    ray.shutdown()


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """Waits until a condition holds and returns what it gave; fails after `within_s` seconds."""

    def wait(condition: Callable[[], Any], within_s: float = 60) -> Any:
        deadline = time.monotonic() + within_s
        while not (given := condition()):
            assert time.monotonic() < deadline, f"the condition did not hold within {within_s} s; the last value is {given!r}"
            time.sleep(0.02)
        return given

    return wait


@pytest.fixture
def run_program(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a program with variables added to its environment; returns its status and what it printed."""

    def run(text: str, **variables: str) -> subprocess.CompletedProcess[str]:
        program = tmp_path / "program.py"
        program.write_text(text)
        environment = {**os.environ, **variables}
        command = [sys.executable, str(program)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    return run
