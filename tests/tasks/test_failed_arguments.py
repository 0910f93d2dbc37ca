"""What is told of a task, a method and a constructor that did not run, since one of their arguments is an error."""

from __future__ import annotations

import os
import pickle
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, RayTaskError, TaskCancelledError, WorkerCrashedError

pytestmark = pytest.mark.usefixtures("cluster")

HEADLINE = "\n  At least one of the input arguments for this task could not be computed:\n"


@ray.remote
def bad() -> None:
    raise ValueError("boom")


@ray.remote(max_retries=0)
def crashes() -> None:
    os._exit(7)


@ray.remote
def use(*values: Any, **named: Any) -> int:
    return len(values) + len(named)


@ray.remote
def yields(*values: Any) -> Iterator[Any]:
    yield from values


@ray.remote
class User:
    def __init__(self, *values: Any) -> None:
        self.values = values

    def use(self, *values: Any) -> int:
        return len(values)


def raised(reference: Any) -> RayTaskError:
    with pytest.raises(RayTaskError) as caught:
        ray.get(reference, timeout=30)
    return caught.value


def test_the_reader_sees_which_task_could_not_run_and_why() -> None:
    for reference in (use.remote(bad.remote()), use.remote(1, named=bad.remote())):
        error = raised(reference)
        assert isinstance(error, ValueError) and isinstance(error.cause, ValueError)
        assert (str(error.cause), error.function_name) == ("boom", "use")
        text = str(error)
        assert text.startswith("ray::use() (pid=") and HEADLINE in text, text
        assert re.search(r"RayTaskError: ray::bad\(\) \(pid=\d+, ip=", text), text
        assert text.rstrip().endswith("ValueError: boom")
        again = pickle.loads(pickle.dumps(error))
        assert isinstance(again, ValueError) and str(again) == text


def test_each_task_between_the_error_and_its_reader_is_named() -> None:
    error = raised(use.options(name="third").remote(use.options(name="second").remote(use.remote(bad.remote()))))
    text = str(error)
    places = [text.index(f"ray::{name}()") for name in ("third", "second", "use", "bad")]
    assert places == sorted(places) and text.count(HEADLINE) == 3, text
    assert isinstance(error, ValueError) and error.function_name == "third"


def test_a_long_chain_names_its_ends() -> None:
    last = bad.remote()
    for number in range(100):
        last = use.options(name=f"task {number}").remote(last)
    text = str(raised(last))
    assert text.startswith("ray::task 99()") and "ray::task 0()" in text and "ray::bad()" in text
    assert text.count(HEADLINE) == 16


def test_every_result_and_item_tells_of_it() -> None:
    first, second = use.options(num_returns=2).remote(bad.remote())
    assert [raised(one).function_name for one in (first, second)] == ["use", "use"]
    items = yields.remote(bad.remote())
    assert raised(next(items)).function_name == "yields"


def test_what_failed_may_have_failed_outside_of_user_code() -> None:
    error = raised(use.remote(crashes.remote()))
    assert isinstance(error, WorkerCrashedError) and type(error.cause) is WorkerCrashedError
    assert str(error).startswith("ray::use() (pid=") and HEADLINE in str(error) and str(error.cause) in str(error)
    dead = User.remote()
    ray.kill(dead)
    error = raised(use.remote(dead.use.remote()))
    assert isinstance(error, ActorDiedError) and error.cause.actor_id == dead._actor_id.hex()
    nowhere = use.options(resources={"nowhere": 1}).remote()
    assert isinstance(raised(use.remote(nowhere)).cause, ray.exceptions.TaskUnschedulableError)


@ray.remote(num_cpus=4, max_retries=0)
def holds_every_cpu() -> None:
    signal.pause()


def test_a_cancelled_argument() -> None:
    holder = holds_every_cpu.remote()
    waits = use.options(num_cpus=4).remote()
    user = use.remote(waits)
    ray.cancel(waits)
    assert isinstance(raised(user), TaskCancelledError)
    ray.cancel(holder, force=True)


def test_methods() -> None:
    user = User.remote()
    error = raised(user.use.remote(bad.remote()))
    assert isinstance(error, ValueError) and error.function_name == "User.use"
    assert str(error).startswith("ray::User.use() (pid=") and HEADLINE in str(error) and "ray::bad()" in str(error)
    assert ray.get(user.use.remote(1), timeout=30) == 1


@pytest.mark.parametrize(("argument", "cause"), [(bad, "ValueError: boom"), (crashes, "WorkerCrashedError")])
def test_constructors(argument: Any, cause: str) -> None:
    user = User.remote(argument.remote())
    with pytest.raises(ActorDiedError) as caught:
        ray.get(user.use.remote(), timeout=30)
    text = str(caught.value)
    assert re.search(r"error raised in its creation task, ray::User\.__init__\(\) \(pid=\d+, ip=[^)]*\)" + HEADLINE, text), text
    assert f"ray::{argument.__name__}()" in text or cause in text
    assert cause in text and caught.value.actor_init_failed and caught.value.class_name == "User"


def test_a_task_that_did_not_run_is_listed_with_what_its_argument_failed_with() -> None:
    from ray.util import state

    reference = use.options(name="listed as unrun").remote(crashes.remote())
    raised(reference)
    [row] = state.list_tasks(filters=[("task_id", "=", reference.task_id().hex())], detail=True)
    assert (row.state, row.error_type) == ("FAILED", "WORKER_DIED")
    assert "did not run" in row.error_message
