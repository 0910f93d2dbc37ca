"""Tasks: what a remote function takes, gives and raises."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
import ray

pytestmark = pytest.mark.usefixtures("session")


def test_a_task_returns_its_value() -> None:
    @ray.remote
    def add(a: int, b: int = 2) -> int:
        return a + b

    assert ray.get(add.remote(1)) == 3
    assert ray.get(add.remote(1, b=5)) == 6


def test_a_reference_as_an_argument_arrives_as_its_value() -> None:
    @ray.remote
    def increment(x: int) -> int:
        return x + 1

    assert ray.get(increment.remote(increment.remote(ray.put(1)))) == 3


def test_a_reference_as_a_keyword_argument_arrives_as_its_value() -> None:
    @ray.remote
    def same(*, x: int) -> int:
        return x

    assert ray.get(same.remote(x=ray.put(7))) == 7


def test_a_reference_within_a_container_stays_a_reference() -> None:
    @ray.remote
    def kinds(references: list, mapping: dict) -> bool:
        return isinstance(references[0], ray.ObjectRef) and isinstance(mapping["x"], ray.ObjectRef)

    reference = ray.put(1)
    assert ray.get(kinds.remote([reference], {"x": reference}))


def test_several_results_are_several_references() -> None:
    @ray.remote(num_returns=3)
    def three() -> tuple:
        return 0, 1, 2

    references = three.remote()
    assert len(references) == 3
    assert ray.get(references) == [0, 1, 2]


def test_no_results_are_no_reference() -> None:
    @ray.remote(num_returns=0)
    def nothing() -> None: ...

    assert nothing.remote() is None


def test_too_few_values_for_the_results_raise_for_each() -> None:
    @ray.remote(num_returns=3)
    def two() -> tuple:
        return 1, 2

    for reference in two.remote():
        with pytest.raises(ValueError):
            ray.get(reference)


def test_options_override_what_the_decorator_says() -> None:
    @ray.remote(num_returns=3)
    def some() -> tuple:
        return (1, 2)

    assert ray.get(some.options(num_returns=2).remote()) == [1, 2]


def test_options_leave_the_function_as_it_was() -> None:
    @ray.remote
    def name() -> str:
        return ray.get_runtime_context().get_task_name()

    assert ray.get(name.options(name="other").remote()) == "other"
    assert ray.get(name.remote()).endswith("name")


def test_a_remote_function_cannot_be_called_directly() -> None:
    @ray.remote
    def f() -> None: ...

    with pytest.raises(TypeError, match="Remote functions cannot be called directly"):
        f()


def test_the_function_behind_a_remote_function_is_there() -> None:
    @ray.remote
    def double(x: int) -> int:
        return 2 * x

    assert double._function(4) == 8


def test_remote_is_a_function_too() -> None:
    assert ray.get(ray.remote(lambda x: x + 1).remote(1)) == 2
    assert ray.get(ray.remote(num_cpus=0.5)(lambda: 3).remote()) == 3


def test_missing_arguments_raise_when_the_task_is_called() -> None:
    @ray.remote
    def two(a: int, b: int) -> None: ...

    with pytest.raises(TypeError, match="missing a required argument"):
        two.remote(1)
    with pytest.raises(TypeError):
        two.remote(1, 2, 3)
    with pytest.raises(TypeError):
        two.remote(1, c=3)


def test_an_exception_is_raised_as_its_own_class_and_as_a_task_error() -> None:
    class Own(Exception):
        pass

    @ray.remote
    def fail() -> None:
        raise Own("the reason")

    with pytest.raises(Own, match="the reason") as caught:
        ray.get(fail.remote())
    assert isinstance(caught.value, ray.exceptions.RayTaskError)
    assert isinstance(caught.value.cause, Own)


def test_the_text_of_a_task_error_has_the_traceback_of_the_task() -> None:
    @ray.remote
    def fail() -> None:
        raise ValueError("the reason")

    with pytest.raises(ray.exceptions.RayTaskError) as caught:
        ray.get(fail.remote())
    text = str(caught.value)
    assert "ray::" in text and "pid=" in text and "ip=" in text
    assert 'raise ValueError("the reason")' in text


def test_an_error_goes_through_the_tasks_that_depend_on_it() -> None:
    @ray.remote
    def fail() -> None:
        raise ValueError("the reason")

    @ray.remote
    def use(x: Any) -> Any:
        return x

    with pytest.raises(ValueError, match="the reason"):
        ray.get(use.remote(use.remote(fail.remote())))


def test_a_task_starts_tasks() -> None:
    @ray.remote
    def leaf(x: int) -> int:
        return x * x

    @ray.remote
    def tree(n: int) -> int:
        return sum(ray.get([leaf.remote(i) for i in range(n)]))

    assert ray.get(tree.remote(4)) == 14


def test_a_task_that_waits_lends_its_processor() -> None:
    @ray.remote(num_cpus=1)
    def leaf() -> int:
        return 1

    @ray.remote(num_cpus=1)
    def tree(depth: int) -> int:
        return ray.get(leaf.remote()) if depth == 0 else 1 + ray.get(tree.remote(depth - 1))

    assert ray.get(tree.remote(6), timeout=60) == 7


def test_a_task_may_return_a_reference() -> None:
    @ray.remote
    def leaf() -> int:
        return 5

    @ray.remote
    def give() -> list:
        return [leaf.remote(), ray.put(6)]

    assert ray.get(ray.get(give.remote())) == [5, 6]


def test_a_worker_is_used_again() -> None:
    @ray.remote
    def pid() -> int:
        return os.getpid()

    assert ray.get(pid.remote()) != os.getpid()
    assert len({ray.get(pid.remote()) for _ in range(10)}) < 10


def test_max_calls_ends_the_worker_after_so_many_calls(eventually: Callable[..., Any]) -> None:
    @ray.remote(max_calls=1)
    def pid() -> int:
        return os.getpid()

    first = ray.get(pid.remote())
    assert ray.get(pid.remote()) != first
    eventually(lambda: not os.path.exists(f"/proc/{first}"))


def test_a_task_runs_again_when_its_worker_dies(tmp_path: Any) -> None:
    marker = tmp_path / "ran"

    @ray.remote(max_retries=1)
    def once() -> str:
        if not marker.exists():
            marker.touch()
            os._exit(1)
        return "done"

    assert ray.get(once.remote(), timeout=60) == "done"


def test_a_task_without_retries_fails_when_its_worker_dies() -> None:
    @ray.remote(max_retries=0)
    def die() -> None:
        os._exit(1)

    with pytest.raises(ray.exceptions.WorkerCrashedError, match="died"):
        ray.get(die.remote())


def test_an_exception_is_not_retried_by_default(tmp_path: Any) -> None:
    @ray.remote(max_retries=3)
    def fail() -> None:
        with (tmp_path / "runs").open("a") as file:
            file.write("x")
        raise ValueError

    with pytest.raises(ValueError):
        ray.get(fail.remote())
    assert (tmp_path / "runs").read_text() == "x"


def test_exceptions_are_retried_where_that_is_asked_for(tmp_path: Any) -> None:
    @ray.remote(max_retries=2, retry_exceptions=True)
    def flaky() -> int:
        with (tmp_path / "runs").open("a") as file:
            file.write("x")
        if len((tmp_path / "runs").read_text()) < 3:
            raise ValueError
        return 1

    assert ray.get(flaky.remote()) == 1


def test_only_the_listed_exceptions_are_retried(tmp_path: Any) -> None:
    @ray.remote(max_retries=2, retry_exceptions=[KeyError])
    def fail() -> None:
        with (tmp_path / "runs").open("a") as file:
            file.write("x")
        raise ValueError

    with pytest.raises(ValueError):
        ray.get(fail.remote())
    assert (tmp_path / "runs").read_text() == "x"


def test_a_task_sees_its_resources() -> None:
    @ray.remote(num_cpus=2, resources={"part": 3})
    def assigned() -> dict:
        return ray.get_runtime_context().get_assigned_resources()

    assert ray.get(assigned.remote()) == {"CPU": 2.0, "part": 3.0}


def test_a_gpu_task_sees_its_devices() -> None:
    @ray.remote(num_gpus=1)
    def devices() -> tuple:
        return ray.get_gpu_ids(), os.environ["CUDA_VISIBLE_DEVICES"]

    ids, visible = ray.get(devices.remote())
    assert len(ids) == 1 and str(ids[0]) == visible


def test_two_gpu_tasks_have_different_devices(tmp_path: Any) -> None:
    @ray.remote(num_gpus=1)
    def meet(own: str, other: str) -> str:
        (tmp_path / own).touch()
        deadline = time.monotonic() + 40
        while not (tmp_path / other).exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return os.environ["CUDA_VISIBLE_DEVICES"]

    assert set(ray.get([meet.remote("a", "b"), meet.remote("b", "a")])) == {"0", "1"}


def test_fractions_of_a_gpu_share_one() -> None:
    @ray.remote(num_gpus=0.5)
    def devices() -> list:
        return ray.get_gpu_ids()

    assert len(ray.get(devices.remote())) == 1


def test_a_task_that_has_not_begun_can_be_cancelled() -> None:
    @ray.remote(num_cpus=4)
    def hold(seconds: float) -> None:
        time.sleep(seconds)

    first = hold.remote(600)
    second = hold.remote(0)
    ray.cancel(second)
    with pytest.raises(ray.exceptions.TaskCancelledError):
        ray.get(second, timeout=30)
    ray.cancel(first)
    with pytest.raises((ray.exceptions.TaskCancelledError, ray.exceptions.RayTaskError)):
        ray.get(first, timeout=30)


def test_a_task_that_runs_can_be_cancelled(tmp_path: Any, eventually: Callable[..., Any]) -> None:
    @ray.remote
    def run() -> None:
        (tmp_path / "began").touch()
        for _ in range(600):
            time.sleep(0.1)

    reference = run.remote()
    eventually((tmp_path / "began").exists)
    ray.cancel(reference)
    with pytest.raises(ray.exceptions.TaskCancelledError):
        ray.get(reference, timeout=30)


def test_a_task_can_be_cancelled_by_force(tmp_path: Any, eventually: Callable[..., Any]) -> None:
    @ray.remote(max_retries=0)
    def run() -> None:
        (tmp_path / "began").touch()
        time.sleep(60)

    reference = run.remote()
    eventually((tmp_path / "began").exists)
    ray.cancel(reference, force=True)
    with pytest.raises((ray.exceptions.TaskCancelledError, ray.exceptions.WorkerCrashedError)):
        ray.get(reference, timeout=30)


def test_cancelling_what_has_ended_leaves_its_value() -> None:
    @ray.remote
    def one() -> int:
        return 1

    reference = one.remote()
    assert ray.get(reference) == 1
    ray.cancel(reference)
    assert ray.get(reference) == 1


def test_children_are_cancelled_with_their_parent(tmp_path: Any, eventually: Callable[..., Any]) -> None:
    @ray.remote
    def child() -> None:
        try:
            (tmp_path / "began").touch()
            for _ in range(600):
                time.sleep(0.1)
        except KeyboardInterrupt:
            (tmp_path / "interrupted").touch()
            raise

    @ray.remote
    def parent() -> None:
        ray.get(child.remote())

    reference = parent.remote()
    eventually((tmp_path / "began").exists)
    ray.cancel(reference, recursive=True)
    eventually((tmp_path / "interrupted").exists)


def test_a_closure_keeps_what_it_captured() -> None:
    factor = 3

    @ray.remote
    def scale(x: int) -> int:
        return factor * x

    assert ray.get(scale.remote(2)) == 6
    factor = 4
    assert ray.get(scale.remote(2)) == 6


def test_a_remote_function_can_be_passed_to_a_task() -> None:
    @ray.remote
    def inner(x: int) -> int:
        return x + 1

    @ray.remote
    def outer(function: Any) -> int:
        return ray.get(function.remote(1))

    assert ray.get(outer.remote(inner)) == 2


def test_the_runtime_context_names_the_task() -> None:
    @ray.remote
    def facts() -> tuple:
        context = ray.get_runtime_context()
        return context.get_task_id(), context.get_job_id(), context.get_node_id(), context.get_worker_id(), context.get_actor_id()

    task, job, node, worker, actor = ray.get(facts.remote())
    own = ray.get_runtime_context()
    assert len(task) == 48 and job == own.get_job_id() and node == own.get_node_id()
    assert worker != own.get_worker_id() and actor is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"num_cpus": -1}, ValueError),
        ({"num_returns": -1}, ValueError),
        ({"max_calls": -1}, ValueError),
        ({"max_retries": -2}, ValueError),
        ({"resources": {"CPU": 1}}, ValueError),
        ({"no_such_option": 1}, ValueError),
        ({"num_gpus": 1.5}, ValueError),
    ],
)
def test_options_out_of_range_are_refused(options: dict, error: type[Exception]) -> None:
    with pytest.raises(error):
        ray.remote(**options)(lambda: None).remote()


def test_the_decorator_takes_keywords_only() -> None:
    with pytest.raises((TypeError, AssertionError)):
        ray.remote(5)(lambda: None)


def test_an_argument_that_cannot_be_pickled_is_refused() -> None:
    import threading

    @ray.remote
    def f(x: Any) -> None: ...

    with pytest.raises(TypeError, match="Could not serialize"):
        f.remote(threading.Lock())


def test_a_generator_expression_as_the_results() -> None:
    @ray.remote(num_returns=3)
    def three() -> Any:
        for i in range(3):
            yield i

    assert ray.get(three.remote()) == [0, 1, 2]


def test_a_task_may_be_an_instance_of_a_class_with_call() -> None:
    class Adder:
        def __init__(self, n: int) -> None:
            self.n = n

        def add(self, x: int) -> int:
            return self.n + x

    adder = Adder(3)
    assert ray.get(ray.remote(lambda x: adder.add(x)).remote(4)) == 7


def test_environment_variables_of_one_task() -> None:
    @ray.remote(runtime_env={"env_vars": {"COMPAT_A": "1"}})
    def value() -> Any:
        return os.environ.get("COMPAT_A")

    assert ray.get(value.remote()) == "1"
    assert ray.get(value.options(runtime_env={"env_vars": {"COMPAT_A": "2"}}).remote()) == "2"


def test_accelerator_types_are_refused_where_they_are_no_text() -> None:
    with pytest.raises((TypeError, ValueError)):
        ray.remote(accelerator_type=5)(lambda: None).remote()
