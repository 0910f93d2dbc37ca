"""What is tried again waits: as long as is asked for, and ever longer where its workers die again and again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import GetTimeoutError, TaskCancelledError
from watching import wait_until


@pytest.fixture
def start() -> Iterator[Callable[..., Any]]:
    """Starts a cluster with further options. It ends with the test."""
    ray.shutdown()
    yield lambda **options: ray.init(num_cpus=2, **options)
    ray.shutdown()


@ray.remote
def dies(journal: Path, times: int) -> int:
    with journal.open("a") as file:
        file.write(f"{time.monotonic()}\n")
    if len(journal.read_text().splitlines()) <= times:
        os._exit(3)
    return os.getpid()


@ray.remote(retry_exceptions=True, max_retries=1)
def raises(journal: Path) -> str:
    with journal.open("a") as file:
        file.write(f"{time.monotonic()}\n")
    if len(journal.read_text().splitlines()) == 1:
        raise ValueError("the first time")
    return "done"


def pauses(journal: Path) -> list[float]:
    moments = [float(line) for line in journal.read_text().splitlines()]
    return [after - before for before, after in zip(moments, moments[1:])]


def test_a_delay_that_is_asked_for(start, tmp_path: Path) -> None:
    start(_system_config={"task_retry_delay_ms": 400})
    assert ray.get(dies.options(max_retries=1).remote(tmp_path / "died", 1), timeout=30)
    assert ray.get(raises.remote(tmp_path / "raised"), timeout=30) == "done"
    assert pauses(tmp_path / "died")[0] >= 0.4
    assert pauses(tmp_path / "raised")[0] >= 0.4


def test_a_delay_that_is_no_number_is_refused(start, monkeypatch) -> None:
    monkeypatch.setenv("RAY_task_retry_delay_ms", "soon")
    with pytest.raises(ValueError, match="task_retry_delay_ms is 'soon'"):
        start()


def test_without_one_the_first_attempts_follow_at_once_and_others_ever_later(start, tmp_path: Path) -> None:
    start()
    journal = tmp_path / "journal"
    assert ray.get(dies.options(max_retries=-1).remote(journal, 6), timeout=60)
    waited = pauses(journal)
    assert waited[3] >= 0.1
    assert waited[4] >= 0.2
    assert waited[5] >= 0.4


def test_an_interpreter_that_cannot_start_is_told_of_once_and_tried_ever_more_seldom(start, capfd) -> None:
    start()
    broken = dies.options(max_retries=-1, runtime_env={"env_vars": {"PYTHONHOME": "/nonexistent"}})
    references = [broken.remote(Path("/dev/null"), 0) for _ in range(3)]
    told = ""

    def is_told() -> bool:
        nonlocal told
        told += "".join(capfd.readouterr())
        return "each time its worker died" in told

    wait_until(is_told)
    with pytest.raises(GetTimeoutError):
        ray.get(references, timeout=2)
    attempts = [row.attempt_number for row in ray.util.state.list_tasks(filters=[("state", "!=", "FINISHED")])]
    assert max(attempts) < 15
    is_told()
    assert told.count("each time its worker died") == 1
    for reference in references:
        ray.cancel(reference)
    for reference in references:
        with pytest.raises(TaskCancelledError):
            ray.get(reference, timeout=60)
