"""Actors: state, order, names, ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time

import pytest
import ray
from watching import alive, wait_until


@ray.remote
def echo(value: object) -> object:
    return value


@ray.remote
class Counter:
    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, n: int = 1) -> int:
        self.value += n
        return self.value

    def pid(self) -> int:
        return os.getpid()

    def fail(self) -> None:
        raise ValueError("on purpose")

    @ray.method(num_returns=2)
    def pair(self) -> tuple[int, int]:
        return 1, 2


def test_state_and_order(cluster) -> None:
    cluster()
    counter = Counter.remote(10)
    assert ray.get([counter.add.remote() for _ in range(1000)]) == list(range(11, 1011))
    assert ray.get(counter.add.remote(n=5)) == 1015
    assert ray.get(counter.pair.remote()) == [1, 2]
    assert ray.get(counter.add.options(num_returns=1).remote()) == 1016


@pytest.mark.parametrize("concurrency", [1, 2])
def test_calls_behind_a_slow_one_are_kept(cluster, concurrency) -> None:
    cluster()

    @ray.remote(max_concurrency=concurrency)
    class Slow:
        def wait(self, seconds):
            time.sleep(seconds)
            return seconds

    slow = Slow.remote()
    ray.get(slow.wait.remote(0))
    assert ray.get([slow.wait.remote(seconds) for seconds in (0.1, 0, 0.1, 0)], timeout=20) == [0.1, 0, 0.1, 0]


def test_calls_wait_for_their_arguments_in_order(cluster) -> None:
    cluster()
    slow = ray.remote(lambda: time.sleep(0.2) or 100)
    counter = Counter.remote()
    assert ray.get([counter.add.remote(slow.remote()), counter.add.remote(1)]) == [100, 101]


def test_making_an_actor_does_not_wait_for_its_arguments(cluster, tmp_path) -> None:
    cluster()
    gate = tmp_path / "gate"

    @ray.remote
    def late():
        while not gate.exists():
            time.sleep(0.005)
        return 5

    counter, doomed = Counter.remote(late.remote()), Counter.remote(late.remote())
    calls = [counter.add.remote(), doomed.add.remote()]
    assert not ray.wait(calls, timeout=0)[0], "neither has begun: asking for them waited for nothing"
    ray.kill(doomed)
    with pytest.raises(ray.exceptions.ActorDiedError, match="arguments"):
        ray.get(calls[1], timeout=20)
    gate.touch()
    assert ray.get(calls[0], timeout=20) == 6


def test_a_failed_argument_of_a_constructor_is_the_cause_of_death(cluster) -> None:
    cluster()
    counter = Counter.remote(ray.remote(lambda: 1 / 0).remote())
    with pytest.raises(ray.exceptions.ActorDiedError, match="ZeroDivisionError"):
        ray.get(counter.add.remote(), timeout=20)


def test_errors_leave_the_actor_alive(cluster) -> None:
    cluster()
    counter = Counter.remote()
    with pytest.raises(ValueError, match="on purpose"):
        ray.get(counter.fail.remote())
    assert ray.get(counter.add.remote()) == 1


def test_what_a_handle_refuses(cluster) -> None:
    cluster()
    counter = Counter.remote()
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        counter.missing.remote()
    with pytest.raises(TypeError, match="too many positional arguments"):
        counter.add.remote(1, 2)
    with pytest.raises(TypeError, match="num_gpus"):
        counter.add.options(num_gpus=1)
    with pytest.raises(TypeError, match="cannot be called directly"):
        counter.add()
    with pytest.raises(TypeError, match="cannot be instantiated directly"):
        Counter()
    with pytest.raises(TypeError, match="too many positional arguments"):
        Counter.remote(1, 2)
    with pytest.raises(TypeError, match="Inheriting from actor classes is not currently supported"):

        class Derived(Counter):  # type: ignore[misc, valid-type]
            pass


def test_a_failing_constructor_is_the_cause_of_death(cluster) -> None:
    cluster()

    @ray.remote
    class Broken:
        def __init__(self):
            raise KeyError("no config")

        def ping(self):
            return 1

    with pytest.raises(ray.exceptions.ActorDiedError, match="no config") as caught:
        ray.get(Broken.remote().ping.remote(), timeout=20)
    assert caught.value.actor_init_failed


def test_kill(cluster) -> None:
    cluster()
    counter = Counter.remote()
    pid = ray.get(counter.pid.remote())
    ray.kill(counter)
    with pytest.raises(ray.exceptions.ActorDiedError, match="kill"):
        ray.get(counter.add.remote(), timeout=20)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(counter.add.remote(), timeout=20)
    wait_until(lambda: not alive(pid))
    with pytest.raises(ValueError, match="only supported for actors"):
        ray.kill("counter")


def test_a_crash_fails_calls_under_way_and_later_ones(cluster) -> None:
    cluster()

    @ray.remote
    class Fragile:
        def crash(self):
            os.kill(os.getpid(), signal.SIGKILL)

        def ping(self):
            return 1

    fragile = Fragile.remote()
    calls = [fragile.ping.remote(), fragile.crash.remote(), fragile.ping.remote()]
    assert ray.get(calls[0]) == 1
    for call in calls[1:]:
        with pytest.raises(ray.exceptions.ActorDiedError, match="SIGKILL"):
            ray.get(call, timeout=20)


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("how", ["exit_actor", "sys.exit", "terminate"])
def test_an_actor_ends_itself(cluster, how, concurrency) -> None:
    cluster()

    @ray.remote(max_concurrency=concurrency)
    class Leaver:
        def leave(self):
            if how == "exit_actor":
                ray.actor.exit_actor()
            sys.exit(0)

        def ping(self):
            return 1

    leaver = Leaver.remote()
    assert ray.get(leaver.ping.remote()) == 1
    leaving = leaver.__ray_terminate__.remote() if how == "terminate" else leaver.leave.remote()
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(leaving, timeout=20)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(leaver.ping.remote(), timeout=60)


def test_exit_actor_is_for_actors() -> None:
    with pytest.raises(TypeError, match="non-actor worker"):
        ray.actor.exit_actor()


def test_the_last_handle_ends_the_actor_after_its_calls(cluster, tmp_path) -> None:
    cluster()

    @ray.remote
    class Writer:
        def pid(self):
            return os.getpid()

        def write(self):
            time.sleep(0.1)
            (tmp_path / "written").touch()

    writer = Writer.remote()
    pid = ray.get(writer.pid.remote())
    writer.write.remote()
    del writer
    wait_until(lambda: not alive(pid))
    assert (tmp_path / "written").exists()


def test_names(cluster) -> None:
    cluster()
    counter = Counter.options(name="shared").remote(5)
    assert ray.get(ray.get_actor("shared").add.remote()) == 6
    assert ray.get_actor("shared") == counter
    with pytest.raises(ValueError, match="shared") as caught:
        Counter.options(name="shared").remote()
    assert isinstance(caught.value, ray.exceptions.ActorAlreadyExistsError)
    again = Counter.options(name="shared", get_if_exists=True).remote(100)
    assert ray.get(again.add.remote()) == 7
    with pytest.raises(ValueError, match="other"):
        ray.get_actor("other")
    with pytest.raises(ValueError):
        ray.get_actor("")
    ray.kill(counter)

    def is_free() -> bool:
        try:
            ray.get_actor("shared")
        except ValueError:
            return True
        return False

    wait_until(is_free)


def test_namespaces(cluster) -> None:
    cluster(namespace="mine")
    assert ray.get_runtime_context().namespace == "mine"
    _elsewhere = Counter.options(name="x", namespace="yours").remote(1)
    with pytest.raises(ValueError):
        ray.get_actor("x")
    assert ray.get(ray.get_actor("x", namespace="yours").add.remote()) == 2


def test_handles_travel(cluster) -> None:
    cluster()

    @ray.remote
    def use(counter):
        return ray.get(counter.add.remote())

    @ray.remote
    def use_nested(box):
        return ray.get(box["counter"].add.remote())

    counter = Counter.remote()
    assert ray.get(use.remote(counter)) == 1
    assert ray.get(use_nested.remote({"counter": counter})) == 2
    assert ray.get(counter.__ray_call__.remote(lambda self, n: self.value + n, 10)) == 12
    assert ray.get(counter.__ray_ready__.remote()) is True


def test_a_reference_given_to_the_constructor_is_kept(cluster) -> None:
    cluster()

    @ray.remote
    class Keeper:
        def __init__(self, box, value):
            self.box, self.value = box, value

        def open(self):
            return ray.get(self.box[0]), self.value

    keeper = Keeper.remote([ray.put("kept")], ray.put("given"))
    assert ray.get([ray.remote(lambda: 1).remote() for _ in range(20)]) == [1] * 20
    assert ray.get(keeper.open.remote(), timeout=20) == ("kept", "given")


def test_threads_of_an_actor_run_at_once(cluster) -> None:
    cluster()

    @ray.remote(max_concurrency=3)
    class Meeting:
        def __init__(self):
            self.barrier = threading.Barrier(3)

        def meet(self):
            return self.barrier.wait(timeout=20) >= 0

    meeting = Meeting.remote()
    assert ray.get([meeting.meet.remote() for _ in range(3)], timeout=30) == [True] * 3


def test_async_methods_run_at_once_and_know_their_call(cluster) -> None:
    cluster()

    @ray.remote
    class Async:
        def __init__(self):
            self.met = 0

        async def meet(self, count):
            self.met += 1
            while self.met < count:
                await asyncio.sleep(0.005)
            return ray.get_runtime_context().get_task_name()

        async def fetch(self, box):
            return await box[0]

        async def fail(self):
            raise KeyError("async")

        def plain(self):
            return "plain"

        async def leave(self):
            ray.actor.exit_actor()

    actor = Async.remote()
    assert ray.get([actor.meet.remote(50) for _ in range(50)], timeout=30) == ["Async.meet"] * 50
    assert ray.get(actor.fetch.remote([echo.remote("value")]), timeout=30) == "value"
    assert ray.get(actor.plain.remote()) == "plain"
    with pytest.raises(KeyError):
        ray.get(actor.fail.remote())
    with pytest.raises(ray.exceptions.ActorDiedError, match="exit_actor"):
        ray.get(actor.leave.remote(), timeout=30)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(actor.plain.remote(), timeout=30)


def test_max_concurrency_bounds_async_calls(cluster) -> None:
    cluster()

    @ray.remote(max_concurrency=2)
    class Bounded:
        def __init__(self):
            self.now = self.most = 0

        async def step(self):
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.01)
            self.now -= 1
            return self.most

    actor = Bounded.remote()
    assert max(ray.get([actor.step.remote() for _ in range(10)], timeout=30)) == 2


def test_actors_make_tasks_and_actors(cluster) -> None:
    cluster()

    @ray.remote
    class Boss:
        def __init__(self):
            self.worker = Counter.remote()

        def work(self):
            return ray.get(self.worker.add.remote()) + ray.get(ray.remote(lambda: 10).remote())

    assert ray.get(Boss.remote().work.remote(), timeout=30) == 11


def test_context_inside(cluster) -> None:
    cluster()

    @ray.remote
    class Self:
        def facts(self):
            context = ray.get_runtime_context()
            return (
                context.get_actor_id(),
                context.get_actor_name(),
                context.get_task_name(),
                context.get_job_id(),
                context.get_assigned_resources(),
                context.current_actor,
            )

        def ping(self):
            return 1

    handle = Self.options(name="me").remote()
    actor_id, name, task_name, job_id, resources, itself = ray.get(handle.facts.remote())
    assert itself == handle and ray.get(itself.ping.remote()) == 1
    assert actor_id == handle._actor_id.hex()
    assert (name, task_name, resources) == ("me", "Self.facts", {})
    assert job_id == ray.get_runtime_context().get_job_id()
