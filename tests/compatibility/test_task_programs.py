"""Programs of tasks: options, retries, cancellation, and values in odd places."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.exceptions import GetTimeoutError, RayTaskError, TaskCancelledError, WorkerCrashedError

pytestmark = pytest.mark.usefixtures("session")
Eventually = Callable[..., Any]


@ray.remote
def same(value: Any = None, *rest: Any, **named: Any) -> Any:
    return (value, rest, named) if rest or named else value


@ray.remote
def fail(text: str = "wrong") -> None:
    raise ValueError(text)


def test_options_of_options_take_what_the_last_says() -> None:
    @ray.remote(num_returns=2)
    def pair() -> tuple[int, int]:
        return 1, 2

    assert ray.get(pair.options(num_returns=1).remote()) == (1, 2)
    assert ray.get(pair.options(name="one", num_returns=1).remote()) == (1, 2)
    assert len(pair.remote()) == 2


def test_options_are_kept_and_used_again() -> None:
    named = same.options(name="kept", num_cpus=1)
    assert ray.get([named.remote(index) for index in range(3)]) == [0, 1, 2]


@pytest.mark.parametrize(
    "options",
    [
        {"num_cpus": 0},
        {"num_cpus": 0.5},
        {"num_cpus": None},
        {"num_gpus": 0},
        {"num_gpus": 0.25},
        {"memory": 100 * 1024 * 1024},
        {"memory": None},
        {"resources": {}},
        {"resources": {"part": 0.001}},
        {"resources": None},
        {"max_retries": 0},
        {"max_retries": -1},
        {"retry_exceptions": []},
        {"scheduling_strategy": None},
        {"scheduling_strategy": "DEFAULT"},
        {"scheduling_strategy": "SPREAD"},
        {"runtime_env": None},
        {"runtime_env": {}},
        {"name": ""},
        {"name": None},
        {"num_returns": None},
        {"accelerator_type": None},
        {"label_selector": None},
        {"label_selector": {}},
        {"enable_task_events": False},
    ],
    ids=str,
)
def test_a_task_runs_with_this_option(options: dict[str, Any]) -> None:
    assert ray.get(same.options(**options).remote(5), timeout=60) == 5


@pytest.mark.parametrize(
    "options",
    [
        {"num_cpus": -1},
        {"num_gpus": 1.5},
        {"resources": {"CPU": 1}},
        {"resources": {"GPU": 1}},
        {"resources": {"part": -1}},
        {"max_retries": -2},
        {"max_calls": 1},
        {"retry_exceptions": None},
        {"num_returns": "some"},
        {"scheduling_strategy": "FASTEST"},
        {"no_such_option": 1},
        {"max_restarts": 1},
        {"lifetime": "detached"},
        {"max_concurrency": 3},
        {"runtime_env": {"env_vars": {"A": 1}}},
    ],
    ids=str,
)
def test_this_option_of_a_task_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        same.options(**options).remote()


def test_a_lambda_is_a_remote_function() -> None:
    assert ray.get(ray.remote(lambda value: value + 1).remote(1)) == 2


def test_a_partial_cannot_be_a_remote_function() -> None:
    with pytest.raises(TypeError, match="@ray.remote decorator must be applied to either a function or a class"):
        ray.remote(functools.partial(max, 1))


def test_a_number_cannot_be_a_remote_function() -> None:
    with pytest.raises(AssertionError, match="The @ray.remote decorator must be applied either with no arguments"):
        ray.remote(5)


def test_a_decorated_function_may_be_decorated_first() -> None:
    def twice(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def wrapper(*arguments: int) -> int:
            return 2 * function(*arguments)

        return wrapper

    @ray.remote
    @twice
    def three() -> int:
        return 3

    assert ray.get(three.remote()) == 6


def test_a_recursive_remote_function_calls_itself() -> None:
    @ray.remote
    def fibonacci(number: int) -> int:
        if number < 2:
            return number
        return sum(ray.get([fibonacci.remote(number - 1), fibonacci.remote(number - 2)]))

    assert ray.get(fibonacci.remote(5)) == 5


def test_default_arguments_are_those_of_the_function() -> None:
    @ray.remote
    def defaults(one: int, two: int = 2, *, three: int = 3) -> tuple[int, int, int]:
        return one, two, three

    assert ray.get([defaults.remote(1), defaults.remote(1, three=5), defaults.remote(one=0, two=0)]) == [
        (1, 2, 3),
        (1, 2, 5),
        (0, 0, 3),
    ]


@pytest.mark.parametrize(("arguments", "named"), [((), {}), ((1, 2, 3), {}), ((1,), {"no_such": 1}), ((1,), {"one": 1})])
def test_arguments_that_do_not_fit_raise_at_the_call(arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    @ray.remote
    def two(one: int, two: int = 2) -> None: ...

    with pytest.raises(TypeError):
        two.remote(*arguments, **named)


def test_references_arrive_as_values_wherever_they_stand() -> None:
    one, two = ray.put(1), ray.put(2)
    assert ray.get(same.remote(one, two, 3, four=ray.put(4))) == (1, (2, 3), {"four": 4})


@pytest.mark.parametrize("make", [list, tuple, set], ids=["list", "tuple", "set"])
def test_a_container_keeps_its_references(make: Callable[..., Any]) -> None:
    @ray.remote
    def kinds(container: Any) -> list[bool]:
        return [isinstance(one, ray.ObjectRef) for one in container]

    assert ray.get(kinds.remote(make([ray.put(1), ray.put(2)]))) == [True, True]


def test_a_reference_to_a_reference_is_read_in_two_steps() -> None:
    inner = ray.put(7)
    outer = ray.put([inner])
    assert ray.get(ray.get(outer)[0]) == 7
    assert isinstance(ray.get(same.remote([outer]))[0], ray.ObjectRef)


def test_a_value_may_be_anything_that_python_has() -> None:
    class Local:
        def __init__(self, value: int) -> None:
            self.value = value

        def __eq__(self, other: object) -> bool:
            return type(other).__name__ == "Local" and other.__dict__ == self.__dict__

        __hash__ = None

    values = [None, True, 1 << 80, -1.5, "text", b"bytes", bytearray(b"x"), {1: {2: {3}}}, (), range(5), slice(1, 2), Local(3)]
    values += [float("inf"), complex(1, 2), frozenset([1]), Ellipsis, int, ValueError]
    for value in values:
        assert ray.get(same.remote(value)) == value


def test_a_task_that_returns_none_has_none() -> None:
    assert ray.get(same.remote(None)) is None


def test_get_of_an_empty_list_is_empty() -> None:
    assert ray.get([]) == []


def test_get_takes_no_tuple_within_a_list() -> None:
    with pytest.raises(TypeError, match="which is not an ray.ObjectRef"):
        ray.get([(ray.put(1), ray.put(2))])


def test_an_exception_that_is_returned_is_a_value() -> None:
    assert isinstance(ray.get(same.remote(ValueError("fine"))), ValueError)


def test_an_error_of_an_argument_reaches_the_last_of_a_chain() -> None:
    reference = fail.remote("the first")
    for _ in range(3):
        reference = same.remote(reference)
    with pytest.raises(ValueError, match="the first"):
        ray.get(reference)


def test_an_error_within_a_container_is_raised_where_it_is_got() -> None:
    @ray.remote
    def careful(references: list[Any]) -> str:
        try:
            ray.get(references[0])
        except ValueError as error:
            return f"caught {type(error).__name__}"
        return "nothing"

    assert ray.get(careful.remote([fail.remote()])) == "caught RayTaskError(ValueError)"


def test_the_cause_of_a_task_error_is_the_programs_own() -> None:
    class Mine(Exception):
        def __init__(self, code: int) -> None:
            super().__init__(f"code {code}")
            self.code = code

    @ray.remote
    def raises() -> None:
        raise Mine(7)

    with pytest.raises(RayTaskError) as caught:
        ray.get(raises.remote())
    assert caught.value.cause.code == 7
    assert caught.value.as_instanceof_cause().code == 7


def test_an_exception_from_another_keeps_its_cause() -> None:
    @ray.remote
    def raises() -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise RuntimeError("outer") from error

    with pytest.raises(RuntimeError, match="outer") as caught:
        ray.get(raises.remote())
    assert "KeyError: 'inner'" in str(caught.value)
    assert "direct cause" in str(caught.value)


def test_get_raises_again_each_time() -> None:
    reference = fail.remote()
    for _ in range(3):
        with pytest.raises(ValueError):
            ray.get(reference)


def test_stop_iteration_comes_back() -> None:
    @ray.remote
    def stop() -> None:
        raise StopIteration

    with pytest.raises(RayTaskError, match="StopIteration"):
        ray.get(stop.remote())


def test_keyboard_interrupt_of_a_task_is_an_error_of_it() -> None:
    @ray.remote(max_retries=0)
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises((RayTaskError, WorkerCrashedError, TaskCancelledError)):
        ray.get(interrupt.remote(), timeout=60)


def test_a_task_is_tried_as_often_as_max_retries_says(tmp_path: Path) -> None:
    @ray.remote(max_retries=2, retry_exceptions=True)
    def count() -> None:
        path = tmp_path / f"{time.monotonic_ns()}"
        path.write_text("")
        raise OSError("again")

    with pytest.raises(OSError):
        ray.get(count.remote())
    assert len(list(tmp_path.iterdir())) == 3


def test_exceptions_of_a_derived_class_are_retried_too(tmp_path: Path) -> None:
    @ray.remote(max_retries=3, retry_exceptions=[LookupError])
    def third() -> int:
        made = len(list(tmp_path.iterdir()))
        (tmp_path / str(made)).write_text("")
        if made < 2:
            raise KeyError("again")
        return made

    assert ray.get(third.remote()) == 2


def test_options_switch_the_retries_of_exceptions_off(tmp_path: Path) -> None:
    @ray.remote(retry_exceptions=True)
    def count() -> None:
        (tmp_path / f"{time.monotonic_ns()}").write_text("")
        raise OSError("once")

    with pytest.raises(OSError):
        ray.get(count.options(retry_exceptions=False).remote())
    assert len(list(tmp_path.iterdir())) == 1


def test_the_number_of_the_attempt_is_in_the_context(tmp_path: Path) -> None:
    @ray.remote(max_retries=3, retry_exceptions=True)
    def attempt() -> int:
        number = ray.get_runtime_context().get_task_id() and len(list(tmp_path.iterdir()))
        (tmp_path / str(number)).write_text(ray.get_runtime_context().get_task_id())
        if number < 2:
            raise OSError("again")
        return number

    assert ray.get(attempt.remote()) == 2
    assert len({path.read_text() for path in tmp_path.iterdir()}) == 1


def test_a_crash_is_retried_three_times_by_default(tmp_path: Path) -> None:
    @ray.remote
    def crash() -> int:
        made = len(list(tmp_path.iterdir()))
        (tmp_path / str(made)).write_text("")
        if made < 3:
            os._exit(1)
        return made

    assert ray.get(crash.remote(), timeout=100) == 3


def test_a_cancelled_task_that_waits_for_its_argument_never_runs(tmp_path: Path) -> None:
    @ray.remote
    def forever() -> None:
        while True:
            time.sleep(0.01)

    @ray.remote
    def mark(value: Any) -> None:
        (tmp_path / "ran").write_text("")

    first = forever.remote()
    second = mark.remote(first)
    ray.cancel(second)
    with pytest.raises(TaskCancelledError):
        ray.get(second, timeout=60)
    ray.cancel(first)
    with pytest.raises((TaskCancelledError, RayTaskError)):
        ray.get(first, timeout=60)
    assert not (tmp_path / "ran").exists()


def test_a_cancelled_task_may_tidy_up(tmp_path: Path, eventually: Eventually) -> None:
    @ray.remote
    def tidy() -> None:
        try:
            (tmp_path / "began").write_text("")
            while True:
                time.sleep(0.01)
        finally:
            (tmp_path / "ended").write_text("")

    reference = tidy.remote()
    eventually((tmp_path / "began").exists)
    ray.cancel(reference)
    with pytest.raises((TaskCancelledError, RayTaskError)):
        ray.get(reference, timeout=60)
    eventually((tmp_path / "ended").exists)


def test_a_task_that_catches_its_cancellation_returns_its_value(tmp_path: Path, eventually: Eventually) -> None:
    @ray.remote
    def stubborn() -> str:
        try:
            (tmp_path / "began").write_text("")
            while True:
                time.sleep(0.01)
        except KeyboardInterrupt:
            return "stubborn"

    reference = stubborn.remote()
    eventually((tmp_path / "began").exists)
    ray.cancel(reference)
    assert ray.get(reference, timeout=60) == "stubborn"


def test_a_cancelled_task_leaves_its_children_where_it_is_not_recursive(tmp_path: Path, eventually: Eventually) -> None:
    @ray.remote(num_cpus=0)
    def child(folder: Path) -> str:
        (folder / "began").write_text("")
        while not (folder / "go").exists():
            time.sleep(0.01)
        (folder / "ended").write_text("")
        return "child"

    @ray.remote(num_cpus=0)
    def parent(folder: Path) -> str:
        return ray.get(child.remote(folder))

    reference = parent.remote(tmp_path)
    eventually((tmp_path / "began").exists)
    ray.cancel(reference, recursive=False)
    with pytest.raises((TaskCancelledError, RayTaskError)):
        ray.get(reference, timeout=60)
    (tmp_path / "go").write_text("")
    eventually((tmp_path / "ended").exists)


def test_what_is_cancelled_is_not_retried(tmp_path: Path, eventually: Eventually) -> None:
    @ray.remote(max_retries=5, retry_exceptions=True)
    def forever() -> None:
        (tmp_path / f"{time.monotonic_ns()}").write_text("")
        while True:
            time.sleep(0.01)

    reference = forever.remote()
    eventually(lambda: list(tmp_path.iterdir()))
    ray.cancel(reference, force=True)
    with pytest.raises((TaskCancelledError, WorkerCrashedError)):
        ray.get(reference, timeout=60)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("wrong", [5, None, "text"])
def test_cancel_takes_references_only(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        ray.cancel(wrong)


def test_get_with_timeout_zero_gives_what_is_there() -> None:
    reference = same.remote(1)
    ray.wait([reference])
    assert ray.get(reference, timeout=0) == 1


def test_get_with_timeout_zero_raises_where_nothing_is_there() -> None:
    @ray.remote
    def forever() -> None:
        time.sleep(1000)

    reference = forever.remote()
    with pytest.raises(GetTimeoutError):
        ray.get(reference, timeout=0)
    ray.cancel(reference, force=True)


def test_wait_with_timeout_zero_looks_once() -> None:
    there = ray.put(1)

    @ray.remote
    def forever() -> None:
        time.sleep(1000)

    pending = forever.remote()
    assert ray.wait([pending, there], num_returns=2, timeout=0) == ([there], [pending])
    ray.cancel(pending, force=True)


def test_wait_returns_no_more_than_it_was_asked_for() -> None:
    references = [ray.put(index) for index in range(5)]
    ready, rest = ray.wait(references, num_returns=2)
    assert (len(ready), len(rest)) == (2, 3)
    assert {*ready, *rest} == {*references}


def test_large_results_of_several_returns_are_apart() -> None:
    @ray.remote(num_returns=2)
    def two() -> tuple[np.ndarray, int]:
        return np.zeros(300_000), 5

    large, small = two.remote()
    assert (ray.get(large).shape, ray.get(small)) == ((300_000,), 5)


def test_one_return_asked_for_as_a_list_is_one_reference() -> None:
    assert isinstance(same.options(num_returns=1).remote(1), ray.ObjectRef)


def test_a_result_that_does_not_fit_the_count_is_an_error() -> None:
    @ray.remote(num_returns=2)
    def three() -> tuple[int, int, int]:
        return 1, 2, 3

    for reference in three.remote():
        with pytest.raises(ValueError):
            ray.get(reference)


def test_a_single_value_for_two_returns_is_an_error() -> None:
    @ray.remote(num_returns=2)
    def one() -> int:
        return 1

    with pytest.raises(TypeError):
        ray.get(one.remote()[0])


def test_a_list_is_as_good_as_a_tuple_for_several_returns() -> None:
    @ray.remote(num_returns=2)
    def two() -> list[int]:
        return [1, 2]

    assert ray.get(two.remote()) == [1, 2]


def test_a_module_of_the_driver_is_seen_by_tasks() -> None:
    import json as renamed

    @ray.remote
    def dump() -> str:
        return renamed.dumps({"a": 1})

    assert ray.get(dump.remote()) == '{"a": 1}'


def test_a_redefined_function_runs_as_it_is_now() -> None:
    def make(value: int) -> Any:
        @ray.remote
        def function() -> int:
            return value

        return function

    assert ray.get([make(1).remote(), make(2).remote()]) == [1, 2]


def test_what_a_function_captures_is_read_when_it_is_first_called() -> None:
    value = 1

    @ray.remote
    def captured() -> int:
        return value

    assert ray.get(captured.remote()) == 1
    value = 2
    assert ray.get(captured.remote()) == 1


def test_the_working_folder_of_a_task_is_the_drivers() -> None:
    @ray.remote
    def here() -> str:
        return os.getcwd()

    assert ray.get(here.remote()) == os.getcwd()


def test_what_a_task_changes_in_an_argument_stays_in_the_task() -> None:
    values = [1, 2]

    @ray.remote
    def append(values: list[int]) -> list[int]:
        values.append(3)
        return values

    assert ray.get(append.remote(values)) == [1, 2, 3]
    assert values == [1, 2]


def test_an_array_must_be_copied_before_it_is_changed() -> None:
    @ray.remote
    def change(array: np.ndarray) -> str:
        try:
            array[0] = 1
        except ValueError as error:
            copy = array.copy()
            copy[0] = 1
            return f"{error}; {int(copy[0])}"
        return "changed"

    assert ray.get(change.remote(ray.put(np.zeros(100_000)))) == "assignment destination is read-only; 1"
