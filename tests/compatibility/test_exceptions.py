"""Exceptions: their kinds, and what they keep on their way."""

from __future__ import annotations

import pickle
import time
from typing import Any

import pytest
import ray
from ray import exceptions

pytestmark = pytest.mark.usefixtures("session")


@pytest.mark.parametrize(
    ("child", "parent"),
    [
        ("RayTaskError", "RayError"),
        ("TaskCancelledError", "RayError"),
        ("GetTimeoutError", "RayError"),
        ("RayActorError", "RayError"),
        ("ActorDiedError", "RayActorError"),
        ("ActorUnavailableError", "RayActorError"),
        ("ActorUnschedulableError", "RayError"),
        ("TaskUnschedulableError", "RayError"),
        ("WorkerCrashedError", "RayError"),
        ("NodeDiedError", "RayError"),
        ("ObjectLostError", "RayError"),
        ("OwnerDiedError", "ObjectLostError"),
        ("ObjectReconstructionFailedError", "ObjectLostError"),
        ("ReferenceCountingAssertionError", "ObjectLostError"),
        ("ObjectFetchTimedOutError", "ObjectLostError"),
        ("ObjectFreedError", "ObjectLostError"),
        ("OutOfMemoryError", "RayError"),
        ("OutOfDiskError", "RayError"),
        ("ObjectStoreFullError", "RayError"),
        ("RuntimeEnvSetupError", "RayError"),
        ("PendingCallsLimitExceeded", "RayError"),
        ("CrossLanguageError", "RayError"),
        ("LocalRayletDiedError", "RayError"),
        ("RaySystemError", "RayError"),
        ("UserCodeException", "RayError"),
        ("UnserializableException", "RayError"),
        ("TaskPlacementGroupRemoved", "RayError"),
        ("ActorPlacementGroupRemoved", "RayError"),
    ],
)
def test_kinds_of_exceptions(child: str, parent: str) -> None:
    assert issubclass(getattr(exceptions, child), getattr(exceptions, parent))


def test_a_timeout_is_pythons_timeout_too() -> None:
    assert issubclass(exceptions.GetTimeoutError, TimeoutError)


def test_an_exception_keeps_its_arguments() -> None:
    @ray.remote
    def fail() -> None:
        raise OSError(2, "gone", "file")

    with pytest.raises(FileNotFoundError) as caught:
        ray.get(fail.remote())
    assert caught.value.cause.args == (2, "gone")


def test_an_exception_keeps_its_attributes() -> None:
    class Own(Exception):
        def __init__(self, code: int) -> None:
            super().__init__(code)
            self.code = code

    @ray.remote
    def fail() -> None:
        raise Own(7)

    with pytest.raises(Own) as caught:
        ray.get(fail.remote())
    assert caught.value.cause.code == 7


def test_except_works_with_the_programs_own_classes() -> None:
    class Base(Exception):
        pass

    class Own(Base):
        pass

    @ray.remote
    def fail() -> None:
        raise Own

    try:
        ray.get(fail.remote())
        raise AssertionError
    except Base as caught:
        assert isinstance(caught, exceptions.RayTaskError)


def test_the_cause_of_an_exception_is_in_the_text() -> None:
    @ray.remote
    def fail() -> None:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner

    with pytest.raises(ValueError) as caught:
        ray.get(fail.remote())
    assert "outer" in str(caught.value) and "inner" in str(caught.value)


def test_an_exception_that_cannot_be_pickled_is_told_of() -> None:
    class Unpicklable(Exception):
        def __init__(self) -> None:
            super().__init__("text of it")
            self.lock = __import__("threading").Lock()

    @ray.remote
    def fail() -> None:
        raise Unpicklable

    with pytest.raises(exceptions.RayTaskError) as caught:
        ray.get(fail.remote())
    assert "text of it" in str(caught.value) or "Unpicklable" in str(caught.value)


def test_base_exceptions_of_python_come_back() -> None:
    @ray.remote
    def fail() -> None:
        raise StopIteration("it is over")

    with pytest.raises(exceptions.RayTaskError, match="it is over"):
        ray.get(fail.remote())


def test_sys_exit_in_a_task_is_a_crash_of_the_worker() -> None:
    @ray.remote(max_retries=0)
    def leave() -> None:
        raise SystemExit(0)

    with pytest.raises(exceptions.WorkerCrashedError):
        ray.get(leave.remote())


def test_an_error_raised_by_get_can_be_pickled() -> None:
    @ray.remote
    def fail() -> None:
        raise ValueError("value")

    with pytest.raises(ValueError) as caught:
        ray.get(fail.remote())
    again = pickle.loads(pickle.dumps(caught.value.cause))
    assert isinstance(again, ValueError) and again.args == ("value",)


def test_an_error_in_a_nested_task_names_both() -> None:
    @ray.remote
    def inner() -> None:
        raise ValueError("value")

    @ray.remote
    def outer() -> None:
        ray.get(inner.remote())

    with pytest.raises(ValueError) as caught:
        ray.get(outer.remote())
    assert "inner" in str(caught.value) and "outer" in str(caught.value)


def test_a_list_raises_the_error_of_one_of_them() -> None:
    @ray.remote
    def fail() -> None:
        raise KeyError("only")

    with pytest.raises(KeyError):
        ray.get([ray.put(1), fail.remote(), ray.put(2)])


def test_an_exception_group_comes_back() -> None:
    @ray.remote
    def fail() -> None:
        raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])

    with pytest.raises(exceptions.RayTaskError) as caught:
        ray.get(fail.remote())
    assert "several" in str(caught.value)


def test_an_exception_that_is_put_is_no_failure() -> None:
    error: Any = ray.get(ray.put(KeyError("kept")))
    assert isinstance(error, KeyError)


def test_errors_say_the_process_they_come_from() -> None:
    @ray.remote
    class Failing:
        def fail(self) -> None:
            raise ValueError("value")

    with pytest.raises(ValueError) as caught:
        ray.get(Failing.remote().fail.remote())
    text = str(caught.value)
    assert "ray::Failing.fail()" in text and "actor_id=" in text


def test_the_death_of_an_actor_names_its_class() -> None:
    @ray.remote
    class Dying:
        def f(self) -> None: ...

    dying = Dying.remote()
    ray.get(dying.f.remote())
    ray.kill(dying)
    # A call may overtake the kill.
    with pytest.raises(exceptions.ActorDiedError) as caught:
        for _ in range(300):
            ray.get(dying.f.remote(), timeout=30)
            time.sleep(0.05)
    assert "Dying" in str(caught.value)
