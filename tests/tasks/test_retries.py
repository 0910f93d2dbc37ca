"""Tasks that are run again: after which errors, how often, and with what left behind by the attempt before."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
import ray
from ray.exceptions import RayTaskError, UserCodeException, WorkerCrashedError

pytestmark = pytest.mark.usefixtures("cluster")


class Base(Exception):
    pass


class Derived(Base):
    pass


class Other(Exception):
    pass


def attempts(journal: Path) -> int:
    """Notes one more attempt; how many there were before."""
    with journal.open("a") as file:
        file.write("x")
    return journal.stat().st_size - 1


def noted(journal: Path) -> int:
    return journal.stat().st_size


@ray.remote(max_retries=3)
def fail_at_first(journal: Path, error: BaseException, times: int) -> str:
    if attempts(journal) < times:
        raise error
    return "done"


@pytest.mark.parametrize(
    ("listed", "error"),
    [
        (True, Other()),
        ([Base], Base()),
        ([Base], Derived()),
        ((Other, Derived), Derived()),
        ([Exception], KeyError("any")),
    ],
)
def test_what_is_listed_is_retried(listed, error, tmp_path) -> None:
    journal = tmp_path / "journal"
    task = fail_at_first.options(retry_exceptions=listed).remote(journal, error, 3)
    assert ray.get(task, timeout=20) == "done"
    assert noted(journal) == 4


@pytest.mark.parametrize(("listed", "error"), [(False, Base()), ([Derived], Base()), ([Other], Derived()), ([], Base())])
def test_what_is_not_listed_is_not(listed, error, tmp_path) -> None:
    journal = tmp_path / "journal"
    with pytest.raises(type(error)):
        ray.get(fail_at_first.options(retry_exceptions=listed).remote(journal, error, 3), timeout=20)
    assert noted(journal) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), GeneratorExit()])
def test_what_is_no_exception_is_never_retried(error, tmp_path) -> None:
    journal = tmp_path / "journal"
    with pytest.raises(RayTaskError):
        ray.get(fail_at_first.options(retry_exceptions=True).remote(journal, error, 3), timeout=20)
    assert noted(journal) == 1


def test_the_last_error_is_reported_when_retries_are_used_up(tmp_path) -> None:
    journal = tmp_path / "journal"
    with pytest.raises(Base):
        ray.get(fail_at_first.options(retry_exceptions=[Base], max_retries=2).remote(journal, Base(), 9), timeout=20)
    assert noted(journal) == 3


def test_retries_without_end(tmp_path) -> None:
    journal = tmp_path / "journal"
    task = fail_at_first.options(retry_exceptions=[Base], max_retries=-1).remote(journal, Base(), 25)
    assert ray.get(task, timeout=30) == "done"
    assert noted(journal) == 26


def test_crashes_without_end(tmp_path) -> None:
    @ray.remote(max_retries=-1)
    def crash(journal):
        if attempts(journal) < 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"

    assert ray.get(crash.remote(tmp_path / "journal"), timeout=30) == "done"
    assert noted(tmp_path / "journal") == 7


def test_crashes_and_errors_use_the_same_retries(tmp_path) -> None:
    @ray.remote(max_retries=2, retry_exceptions=True)
    def fail(journal):
        if attempts(journal) % 2 == 0:
            raise ValueError("an error")
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(ValueError, match="an error"):
        ray.get(fail.remote(tmp_path / "journal"), timeout=30)
    assert noted(tmp_path / "journal") == 3


def test_the_error_of_a_task_called_counts_as_what_it_is(tmp_path) -> None:
    @ray.remote
    def child():
        raise Derived

    @ray.remote(retry_exceptions=[Base], max_retries=1)
    def parent(journal):
        attempts(journal)
        ray.get(child.remote())

    with pytest.raises(Derived):
        ray.get(parent.remote(tmp_path / "journal"), timeout=20)
    assert noted(tmp_path / "journal") == 2


def test_an_error_that_wraps_user_code_counts_as_its_cause(tmp_path) -> None:
    @ray.remote(retry_exceptions=[Base], max_retries=1)
    def wrap(journal):
        attempts(journal)
        raise UserCodeException("wrapped") from Derived()

    with pytest.raises(UserCodeException):
        ray.get(wrap.remote(tmp_path / "journal"), timeout=20)
    assert noted(tmp_path / "journal") == 2


@pytest.mark.parametrize("shared", [False, True])
def test_a_large_result_of_an_attempt_that_died_is_no_obstacle(shared, tmp_path) -> None:
    journal = tmp_path / "journal"

    class Deadly:
        """Kills the process that pickles it, the first time: after the result before it lies in the store."""

        def __reduce__(self):
            if attempts(journal) == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return str, ("lived",)

    @ray.remote(num_returns=2, max_retries=2)
    def make():
        return b"x" * (4 << 20), Deadly()

    @ray.remote
    def size(value):
        return len(value)

    large, small = make.remote()
    waiting = size.remote(large) if shared else None
    assert ray.get(small, timeout=30) == "lived"
    assert ray.get(large, timeout=30) == b"x" * (4 << 20)
    assert noted(journal) == 2
    if waiting is not None:
        assert ray.get(waiting, timeout=20) == 4 << 20


def test_a_large_result_of_an_attempt_that_failed_is_no_obstacle(tmp_path) -> None:
    journal = tmp_path / "journal"

    class Picky:
        def __reduce__(self):
            if attempts(journal) == 0:
                raise ValueError("not this time")
            return str, ("pickled",)

    @ray.remote(num_returns=2, max_retries=2, retry_exceptions=True)
    def make():
        return b"y" * (4 << 20), Picky()

    large, small = make.remote()
    shared = ray.put([large])
    assert ray.get(small, timeout=30) == "pickled"
    assert ray.get(ray.get(shared)[0], timeout=30) == b"y" * (4 << 20)


def test_no_retries_means_one_attempt(tmp_path) -> None:
    @ray.remote(max_retries=0)
    def crash(journal):
        attempts(journal)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerCrashedError):
        ray.get(crash.remote(tmp_path / "journal"), timeout=20)
    assert noted(tmp_path / "journal") == 1


def test_a_worker_exits_after_so_many_calls_of_a_function() -> None:
    three = ray.remote(max_calls=3)(lambda: os.getpid())
    pids = Counter(ray.get(three.remote(), timeout=20) for _ in range(12))
    assert all(count <= 3 for count in pids.values()) and len(pids) >= 4
    many = Counter(ray.get([three.remote() for _ in range(30)], timeout=40))
    assert all(count <= 3 for count in many.values())


def test_calls_that_fail_count_towards_max_calls() -> None:
    @ray.remote(max_calls=2)
    def fail():
        raise KeyError(os.getpid())

    pids: Counter[int] = Counter()
    for _ in range(6):
        with pytest.raises(KeyError) as caught:
            ray.get(fail.remote(), timeout=20)
        pids[caught.value.cause.args[0]] += 1
    assert all(count <= 2 for count in pids.values())
