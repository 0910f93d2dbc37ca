"""Tasks: what comes back, what is raised, what is retried."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import ray


@ray.remote
def echo(value: object) -> object:
    return value


@ray.remote
def pid() -> int:
    return os.getpid()


def test_values_of_every_kind_come_back(cluster) -> None:
    cluster()
    values = [None, True, 3, 2**80, 1.5, "text", b"bytes", [1, {"a": (2, 3)}], {1, 2}, slice(1, 2), range(3), Path("/x")]
    assert ray.get([echo.remote(value) for value in values]) == values


def test_arguments_by_position_keyword_and_default(cluster) -> None:
    cluster()

    @ray.remote
    def f(a, b=2, *rest, c, d=4, **others):
        return a, b, rest, c, d, others

    assert ray.get(f.remote(1, c=3)) == (1, 2, (), 3, 4, {})
    assert ray.get(f.remote(1, 5, 6, c=ray.put(7), e=8)) == (1, 5, (6,), 7, 4, {"e": 8})


def test_wrong_arguments_are_refused_where_the_call_is_made(cluster) -> None:
    cluster()
    with pytest.raises(TypeError, match="too many positional arguments"):
        pid.remote(1)
    with pytest.raises(TypeError, match="missing a required argument: 'value'"):
        echo.remote()
    with pytest.raises(TypeError, match="lock"):
        echo.remote(threading.Lock())


def test_a_function_that_cannot_travel_is_refused(cluster) -> None:
    cluster()
    lock = threading.Lock()

    @ray.remote
    def locked():
        return lock

    with pytest.raises(TypeError, match="Could not serialize the function"):
        locked.remote()


def test_closures_lambdas_and_nested_tasks(cluster) -> None:
    cluster()
    offset = 10

    @ray.remote
    def add(x):
        return x + offset

    @ray.remote
    def total(n):
        return sum(ray.get([add.remote(i) for i in range(n)]))

    assert ray.get(total.remote(4)) == 46
    assert ray.get(ray.remote(lambda x: x * 2).remote(4)) == 8


def test_nested_tasks_deeper_than_there_are_cpus(cluster) -> None:
    cluster(num_cpus=1)

    @ray.remote
    def depth(n):
        return 0 if n == 0 else 1 + ray.get(depth.remote(n - 1))

    assert ray.get(depth.remote(5), timeout=30) == 5


def test_num_returns(cluster) -> None:
    cluster()

    @ray.remote(num_returns=3)
    def three():
        return 1, 2, 3

    @ray.remote(num_returns=2)
    def wrong():
        return 1, 2, 3

    @ray.remote(num_returns=0)
    def nothing():
        return None

    assert ray.get(three.remote()) == [1, 2, 3]
    assert ray.get(echo.options(num_returns=2).remote([4, 5])) == [4, 5]
    assert nothing.remote() is None
    for reference in wrong.remote():
        with pytest.raises(ValueError, match="num_returns=2"):
            ray.get(reference)


def test_an_error_is_both_a_task_error_and_its_own_kind(cluster) -> None:
    cluster()

    class Custom(Exception):
        def __init__(self, code):
            super().__init__(code)
            self.code = code

    @ray.remote
    def fail():
        raise Custom(42)

    with pytest.raises(Custom) as caught:
        ray.get(fail.remote())
    assert isinstance(caught.value, ray.exceptions.RayTaskError)
    assert caught.value.cause.code == 42
    assert "fail" in str(caught.value)


def test_an_error_fails_what_depends_on_it_without_running_it(cluster, tmp_path) -> None:
    cluster()
    marker = tmp_path / "ran"

    @ray.remote
    def fail():
        raise KeyError("lost")

    @ray.remote
    def after(_):
        marker.touch()

    with pytest.raises(KeyError):
        ray.get(after.remote(fail.remote()))
    assert not marker.exists()


def test_an_error_that_cannot_be_pickled_still_tells_what_happened(cluster) -> None:
    cluster()

    @ray.remote
    def fail():
        error = ValueError("with a lock")
        error.lock = threading.Lock()
        raise error

    with pytest.raises(ray.exceptions.RayError, match="with a lock"):
        ray.get(fail.remote())


def test_a_result_that_cannot_be_pickled_is_the_tasks_error(cluster) -> None:
    cluster()
    with pytest.raises(TypeError, match="lock"):
        ray.get(ray.remote(lambda: threading.Lock()).remote())


def test_timeouts(cluster) -> None:
    cluster()
    slow = ray.remote(lambda: time.sleep(60)).remote()
    with pytest.raises(ray.exceptions.GetTimeoutError):
        ray.get(slow, timeout=0.05)
    with pytest.raises(ray.exceptions.GetTimeoutError):
        ray.get([slow], timeout=0)
    with pytest.raises(TimeoutError):
        ray.get(slow, timeout=0.01)


def test_get_refuses_what_it_cannot_get(cluster) -> None:
    cluster()
    with pytest.raises(ValueError, match="Invalid type of object refs"):
        ray.get((ray.put(1),))
    with pytest.raises(TypeError, match="which is not an ray.ObjectRef"):
        ray.get([1])
    assert ray.get([]) == []


def test_wait_splits_and_keeps_order(cluster, tmp_path) -> None:
    cluster()
    gate = tmp_path / "gate"

    @ray.remote
    def wait_for_gate():
        while not gate.exists():
            time.sleep(0.01)

    slow, quick = wait_for_gate.remote(), ray.put(1)
    assert ray.wait([slow, quick]) == ([quick], [slow])
    assert ray.wait([slow], timeout=0.02) == ([], [slow])
    gate.touch()
    assert ray.wait([slow, quick], num_returns=2) == ([slow, quick], [])
    assert ray.wait([]) == ([], [])


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (lambda ref: ref, {}, TypeError),
        (lambda ref: [ref, ref], {}, ValueError),
        (lambda ref: [ref], {"num_returns": 0}, ValueError),
        (lambda ref: [ref], {"num_returns": 2}, ValueError),
        (lambda ref: [ref], {"timeout": -1}, ValueError),
        (lambda ref: [1], {}, TypeError),
    ],
)
def test_wait_refuses(cluster, arguments, options, error) -> None:
    cluster()
    with pytest.raises(error):
        ray.wait(arguments(ray.put(1)), **options)


def test_many_tasks_in_flight(cluster) -> None:
    cluster()
    assert ray.get([echo.remote(i) for i in range(3000)]) == list(range(3000))


def test_workers_are_reused_and_exit_after_max_calls(cluster) -> None:
    cluster()
    assert len({ray.get(pid.remote()) for _ in range(5)}) == 1

    @ray.remote(max_calls=2)
    def twice():
        return os.getpid()

    pids = [ray.get(twice.remote()) for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_a_crash_is_retried_and_then_reported(cluster, tmp_path) -> None:
    cluster()

    @ray.remote(max_retries=2)
    def crash(times):
        with open(tmp_path / f"runs{times}", "a") as runs:
            runs.write("x")
        if len((tmp_path / f"runs{times}").read_text()) <= times:
            os.kill(os.getpid(), signal.SIGKILL)
        return "survived"

    assert ray.get(crash.remote(2), timeout=30) == "survived"
    with pytest.raises(ray.exceptions.WorkerCrashedError, match="SIGKILL"):
        ray.get(crash.remote(9), timeout=30)
    assert (tmp_path / "runs9").read_text() == "xxx"


def test_a_crash_takes_no_innocent_task_with_it(cluster) -> None:
    cluster()
    warm = ray.get([echo.remote(i) for i in range(200)])

    @ray.remote(max_retries=0)
    def crash():
        os._exit(3)

    doomed = crash.remote()
    others = [echo.remote(i) for i in range(200)]
    with pytest.raises(ray.exceptions.WorkerCrashedError, match="status 3"):
        ray.get(doomed, timeout=30)
    assert ray.get(others, timeout=30) == warm


def test_sys_exit_ends_the_worker(cluster) -> None:
    cluster()
    with pytest.raises(ray.exceptions.WorkerCrashedError):
        ray.get(ray.remote(max_retries=0)(lambda: sys.exit(0)).remote(), timeout=30)


def test_retry_exceptions(cluster, tmp_path) -> None:
    cluster()

    @ray.remote(max_retries=3, retry_exceptions=[ValueError])
    def sometimes(kind, name):
        runs = tmp_path / name
        runs.write_text((runs.read_text() if runs.exists() else "") + "x")
        if len(runs.read_text()) < 3:
            raise kind("not yet")
        return len(runs.read_text())

    assert ray.get(sometimes.remote(ValueError, "listed")) == 3
    with pytest.raises(KeyError):
        ray.get(sometimes.remote(KeyError, "unlisted"))
    assert (tmp_path / "unlisted").read_text() == "x"


def test_await_and_future(cluster) -> None:
    cluster()

    async def main():
        values = await asyncio.gather(*[echo.remote(i) for i in range(20)])
        with pytest.raises(ZeroDivisionError):
            await ray.remote(lambda: 1 / 0).remote()
        return values

    assert asyncio.run(main()) == list(range(20))
    assert echo.remote(5).future().result(timeout=10) == 5


def test_runtime_env_variables(cluster) -> None:
    cluster(runtime_env={"env_vars": {"OF_JOB": "1", "BOTH": "job"}})

    @ray.remote
    def read():
        return [os.environ.get(name) for name in ("OF_JOB", "BOTH", "OF_TASK")]

    assert ray.get(read.remote()) == ["1", "job", None]
    special = read.options(runtime_env={"env_vars": {"BOTH": "task", "OF_TASK": "2"}})
    assert ray.get(special.remote()) == ["1", "task", "2"]
    assert ray.get(read.remote()) == ["1", "job", None]


def test_children_inherit_variables_and_values_are_expanded(cluster) -> None:
    cluster(runtime_env={"env_vars": {"JOB": "job"}})

    @ray.remote
    def read():
        return [os.environ.get(name) for name in ("JOB", "TASK", "ADDED")]

    @ray.remote
    def parent():
        return ray.get(read.remote()), ray.get(read.options(runtime_env={"env_vars": {"TASK": "own"}}).remote())

    variables = {"TASK": "parent", "ADDED": "${HOME}:more"}
    inherited, own = ray.get(parent.options(runtime_env={"env_vars": variables}).remote(), timeout=30)
    assert inherited == ["job", "parent", f"{os.environ['HOME']}:more"]
    assert own == ["job", "own", f"{os.environ['HOME']}:more"]


def test_what_cannot_be_described_is_still_refused_clearly(cluster) -> None:
    cluster()

    class Sly:
        def __repr__(self):
            raise RuntimeError("no")

        def __reduce__(self):
            raise TypeError("cannot travel")

    with pytest.raises(TypeError, match="Could not serialize"):
        echo.remote(Sly())


def test_an_absurd_quantity_is_refused(cluster) -> None:
    cluster()
    with pytest.raises(ValueError, match=r"num_gpus must be a finite number of at most 1e\+14"):
        echo.options(num_gpus=1e30).remote(1)


def test_an_environment_that_is_not_built_says_so(cluster) -> None:
    cluster()
    with pytest.raises(ray.exceptions.RuntimeEnvSetupError, match="conda create"):
        echo.options(runtime_env={"conda": "somewhere"}).remote(1)


def test_auto_init_and_reinit(cluster) -> None:
    assert not ray.is_initialized()
    assert ray.get(ray.put(1)) == 1
    assert ray.is_initialized()
    with pytest.raises(RuntimeError, match="twice"):
        ray.init()
    ray.init(ignore_reinit_error=True)
    ray.shutdown()
    ray.shutdown()
    cluster()
    assert ray.get(echo.remote("again")) == "again"


def test_long_tasks_do_not_hold_up_short_ones(cluster, tmp_path) -> None:
    cluster(num_cpus=2)
    gate = tmp_path / "gate"
    ray.get([echo.remote(i) for i in range(100)])

    @ray.remote
    def until_gate():
        while not gate.exists():
            time.sleep(0.005)
        return "long"

    long = until_gate.remote()
    assert ray.get([echo.remote(i) for i in range(50)], timeout=20) == list(range(50))
    gate.touch()
    assert ray.get(long, timeout=20) == "long"


def test_tasks_that_wait_for_each_other_on_one_class_do_not_deadlock(cluster, tmp_path) -> None:
    cluster(num_cpus=2)

    @ray.remote
    def meet(me, other):
        (tmp_path / me).touch()
        while not (tmp_path / other).exists():
            time.sleep(0.002)
        return me

    ray.get([echo.remote(i) for i in range(100)])
    assert sorted(ray.get([meet.remote("a", "b"), meet.remote("b", "a")], timeout=20)) == ["a", "b"]


def test_a_task_that_follows_another_may_take_its_time(cluster) -> None:
    cluster()
    slow = ray.remote(lambda value: (time.sleep(0.4), value)[1])
    assert ray.get(slow.remote(echo.remote("waited for")), timeout=20) == "waited for"
    assert ray.get([slow.remote(echo.remote(i)) for i in range(4)], timeout=20) == [0, 1, 2, 3]


def test_a_long_chain_behind_a_failure_fails(cluster) -> None:
    cluster()

    @ray.remote
    def fail(_):
        raise KeyError("first")

    last = fail.remote(None)
    for _ in range(20_000):
        last = echo.remote(last)
    with pytest.raises(KeyError):
        ray.get(last, timeout=60)


def test_a_failed_argument_does_not_wait_for_resources(cluster) -> None:
    cluster(num_gpus=1)

    @ray.remote(num_gpus=1)
    class Holder:
        def ping(self):
            return 1

    holder = Holder.remote()
    ray.get(holder.ping.remote())
    with pytest.raises(ZeroDivisionError):
        ray.get(echo.options(num_gpus=1).remote(ray.remote(lambda: 1 / 0).remote()), timeout=60)


def test_many_arguments_and_results_that_are_large_together(cluster) -> None:
    cluster()
    parts = [ray.put(bytes([i % 256]) * 96_000) for i in range(400)]

    @ray.remote
    def total(*parts):
        return sum(part[0] for part in parts), len(parts)

    assert ray.get(total.remote(*parts), timeout=60) == (sum(i % 256 for i in range(400)), 400)
    results = echo.options(num_returns=400).remote([b"x" * 96_000] * 400)
    assert ray.get(results, timeout=60) == [b"x" * 96_000] * 400


def test_an_error_too_large_to_travel_is_still_an_error(cluster) -> None:
    cluster()

    @ray.remote
    def fail():
        raise ValueError("x" * (140 << 20))

    with pytest.raises(ray.exceptions.RayError, match="too large"):
        ray.get(fail.remote(), timeout=60)


def test_max_calls_costs_no_retries(cluster) -> None:
    cluster()
    once = ray.remote(max_calls=1, max_retries=0)(lambda: os.getpid())
    pids = [ray.get(once.remote(), timeout=20) for _ in range(60)]
    assert len(set(pids)) == 60


def test_threads_may_be_first_to_call(cluster) -> None:
    results: list[object] = []
    threads = [threading.Thread(target=lambda: results.append(ray.get(echo.remote(1)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [1] * 4
