"""Actors: classes, handles, names, lives and ends."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import ray
from ray.util.queue import Queue

pytestmark = pytest.mark.usefixtures("session")


@ray.remote
class Counter:
    def __init__(self, value: int = 0) -> None:
        self.value = value

    def add(self, step: int = 1) -> int:
        self.value += step
        return self.value

    def pid(self) -> int:
        return os.getpid()

    def fail(self) -> None:
        raise KeyError("no such thing")

    def die(self) -> None:
        os._exit(1)

    def two(self) -> tuple:
        return 1, 2


def test_an_actor_keeps_its_state() -> None:
    counter = Counter.remote(10)
    assert ray.get([counter.add.remote() for _ in range(3)]) == [11, 12, 13]


def test_calls_of_one_caller_run_in_order() -> None:
    counter = Counter.remote()
    assert ray.get([counter.add.remote(1) for _ in range(50)]) == list(range(1, 51))


def test_each_actor_has_a_process_of_its_own() -> None:
    one, other = Counter.remote(), Counter.remote()
    pids = ray.get([one.pid.remote(), other.pid.remote()])
    assert len({*pids, os.getpid()}) == 3


def test_a_class_cannot_be_instantiated_directly() -> None:
    with pytest.raises(TypeError, match="cannot be instantiated directly"):
        Counter()


def test_a_method_cannot_be_called_directly() -> None:
    counter = Counter.remote()
    with pytest.raises(TypeError, match="cannot be called directly"):
        counter.add()


def test_a_method_may_have_several_results() -> None:
    counter = Counter.remote()
    assert ray.get(counter.two.options(num_returns=2).remote()) == [1, 2]


def test_the_decorator_method_says_how_many_results() -> None:
    @ray.remote
    class Pair:
        @ray.method(num_returns=2)
        def pair(self) -> tuple:
            return 1, 2

    first, second = Pair.remote().pair.remote()
    assert ray.get([first, second]) == [1, 2]


def test_an_exception_of_a_method_leaves_the_actor_alive() -> None:
    counter = Counter.remote()
    with pytest.raises(KeyError):
        ray.get(counter.fail.remote())
    assert ray.get(counter.add.remote()) == 1


def test_an_unknown_method_is_an_attribute_error() -> None:
    counter = Counter.remote()
    with pytest.raises(AttributeError, match="no_such_method"):
        counter.no_such_method.remote()


def test_an_exception_in_the_constructor_is_the_death_of_the_actor() -> None:
    @ray.remote
    class Broken:
        def __init__(self) -> None:
            raise ValueError("it cannot be made")

        def f(self) -> None: ...

    with pytest.raises(ray.exceptions.ActorDiedError, match="it cannot be made"):
        ray.get(Broken.remote().f.remote())


def test_wrong_arguments_of_the_constructor_raise_at_once() -> None:
    with pytest.raises(TypeError):
        Counter.remote(1, 2, 3)


def test_wrong_arguments_of_a_method_raise_at_once() -> None:
    counter = Counter.remote()
    with pytest.raises(TypeError):
        counter.add.remote(1, 2)


def test_an_actor_that_is_killed_is_dead() -> None:
    counter = Counter.remote()
    ray.get(counter.add.remote())
    ray.kill(counter)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(counter.add.remote(), timeout=30)


def test_the_death_of_an_actor_is_an_actor_error() -> None:
    counter = Counter.remote()
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(counter.die.remote())


def test_an_actor_ends_with_its_last_handle(eventually: Callable[..., Any]) -> None:
    counter = Counter.remote()
    pid = ray.get(counter.pid.remote())
    del counter
    eventually(lambda: not os.path.exists(f"/proc/{pid}"))


def test_an_actor_is_restarted_and_has_a_new_state(eventually: Callable[..., Any]) -> None:
    counter = Counter.options(max_restarts=1, max_task_retries=-1).remote(5)
    first = ray.get(counter.pid.remote())
    assert ray.get(counter.add.remote()) == 6
    os.kill(first, 9)
    eventually(lambda: not os.path.exists(f"/proc/{first}"))
    assert ray.get(counter.add.remote(), timeout=60) == 6
    assert ray.get(counter.pid.remote()) != first


def test_an_actor_without_restarts_left_is_dead(eventually: Callable[..., Any]) -> None:
    counter = Counter.options(max_restarts=0).remote()
    pid = ray.get(counter.pid.remote())
    os.kill(pid, 9)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get([counter.add.remote() for _ in range(3)], timeout=30)


def test_a_kill_with_restart_makes_the_actor_anew(eventually: Callable[..., Any]) -> None:
    counter = Counter.options(max_restarts=1, max_task_retries=-1).remote()
    first = ray.get(counter.pid.remote())
    ray.kill(counter, no_restart=False)
    eventually(lambda: not os.path.exists(f"/proc/{first}"))
    assert ray.get(counter.pid.remote(), timeout=60) != first


def test_a_method_is_retried_where_its_exception_is_asked_for() -> None:
    @ray.remote
    class Flaky:
        def __init__(self) -> None:
            self.runs = 0

        def run(self) -> int:
            self.runs += 1
            if self.runs < 3:
                raise ValueError
            return self.runs

    assert ray.get(Flaky.options(max_task_retries=5).remote().run.options(retry_exceptions=True).remote()) == 3


def test_a_named_actor_is_found_by_its_name() -> None:
    counter = Counter.options(name="compat-named").remote(3)
    assert ray.get(ray.get_actor("compat-named").add.remote()) == 4
    del counter


def test_a_name_is_taken_once() -> None:
    counter = Counter.options(name="compat-taken").remote()
    ray.get(counter.add.remote())
    with pytest.raises(ValueError, match="taken|has the name"):
        Counter.options(name="compat-taken").remote()


def test_get_if_exists_gives_the_actor_there_is() -> None:
    one = Counter.options(name="compat-either", get_if_exists=True).remote(1)
    assert ray.get(one.add.remote()) == 2
    same = Counter.options(name="compat-either", get_if_exists=True).remote(100)
    assert ray.get(same.add.remote()) == 3


def test_a_name_that_nobody_has_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="compat-nobody"):
        ray.get_actor("compat-nobody")


def test_names_are_apart_between_namespaces() -> None:
    counter = Counter.options(name="compat-apart", namespace="one").remote(7)
    ray.get(counter.add.remote())
    assert ray.get(ray.get_actor("compat-apart", namespace="one").add.remote()) == 9
    with pytest.raises(ValueError):
        ray.get_actor("compat-apart", namespace="other")


def test_a_detached_actor_outlives_its_handles() -> None:
    counter = Counter.options(name="compat-detached", lifetime="detached").remote(1)
    ray.get(counter.add.remote())
    del counter
    found = ray.get_actor("compat-detached")
    assert ray.get(found.add.remote()) == 3
    ray.kill(found)


def test_a_name_is_free_after_a_kill(eventually: Callable[..., Any]) -> None:
    counter = Counter.options(name="compat-again", lifetime="detached").remote(1)
    ray.get(counter.add.remote())
    ray.kill(counter)
    del counter

    def is_free() -> bool:
        try:
            ray.get_actor("compat-again")
        except ValueError:
            return True
        return False

    eventually(is_free)
    again = Counter.options(name="compat-again").remote(10)
    assert ray.get(again.add.remote()) == 11


def test_list_named_actors_has_the_names() -> None:
    counter = Counter.options(name="compat-listed").remote()
    ray.get(counter.add.remote())
    assert "compat-listed" in ray.util.list_named_actors()
    everywhere = ray.util.list_named_actors(all_namespaces=True)
    assert "compat-listed" in [entry["name"] for entry in everywhere]


def test_a_handle_can_be_passed_to_a_task() -> None:
    @ray.remote
    def use(counter: Any) -> int:
        return ray.get(counter.add.remote(5))

    counter = Counter.remote()
    assert ray.get(use.remote(counter)) == 5
    assert ray.get(counter.add.remote()) == 6


def test_a_handle_within_an_object_keeps_the_actor_alive() -> None:
    @ray.remote
    def use(counters: list) -> int:
        return ray.get(counters[0].add.remote())

    holder = ray.put([Counter.remote(1)])
    assert ray.get(use.remote(holder)) == 2


def test_exit_actor_ends_the_actor_by_its_own_wish() -> None:
    @ray.remote
    class Leaving:
        def leave(self) -> None:
            ray.actor.exit_actor()

        def f(self) -> None: ...

    leaving = Leaving.remote()
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get([leaving.leave.remote(), leaving.f.remote()], timeout=30)


def test_exit_actor_outside_of_actors_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        ray.actor.exit_actor()


def test_terminate_ends_the_actor_after_its_queued_calls() -> None:
    counter = Counter.remote()
    last = counter.add.remote()
    counter.__ray_terminate__.remote()
    assert ray.get(last) == 1


def test_the_ready_method_waits_for_the_constructor() -> None:
    assert ray.get(Counter.remote().__ray_ready__.remote()) is True


def test_a_function_runs_in_the_actor_by_ray_call() -> None:
    counter = Counter.remote(9)
    assert ray.get(counter.__ray_call__.remote(lambda self, more: self.value + more, 1)) == 10


def test_an_async_actor_runs_its_calls_side_by_side() -> None:
    @ray.remote
    class Meeting:
        def __init__(self) -> None:
            self.event = asyncio.Event()

        async def wait(self) -> str:
            await self.event.wait()
            return "met"

        async def call(self) -> None:
            self.event.set()

    meeting = Meeting.remote()
    waiting = [meeting.wait.remote() for _ in range(5)]
    ray.get(meeting.call.remote())
    assert ray.get(waiting, timeout=30) == ["met"] * 5


def test_max_concurrency_limits_an_async_actor() -> None:
    @ray.remote(max_concurrency=2)
    class Limited:
        def __init__(self) -> None:
            self.running = self.most = 0

        async def run(self) -> None:
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0.02)
            self.running -= 1

        async def seen(self) -> int:
            return self.most

    limited = Limited.remote()
    ray.get([limited.run.remote() for _ in range(8)])
    assert ray.get(limited.seen.remote()) == 2


def test_a_threaded_actor_runs_its_calls_side_by_side() -> None:
    @ray.remote(max_concurrency=3)
    class Threaded:
        def __init__(self) -> None:
            self.barrier = threading.Barrier(3)

        def meet(self) -> int:
            return self.barrier.wait(30)

    threaded = Threaded.remote()
    assert sorted(ray.get([threaded.meet.remote() for _ in range(3)], timeout=60)) == [0, 1, 2]


def test_concurrency_groups_have_threads_of_their_own() -> None:
    @ray.remote(concurrency_groups={"io": 1, "compute": 1})
    class Grouped:
        def __init__(self) -> None:
            self.event = threading.Event()

        @ray.method(concurrency_group="io")
        def wait(self) -> bool:
            return self.event.wait(30)

        @ray.method(concurrency_group="compute")
        def free(self) -> None:
            self.event.set()

    grouped = Grouped.remote()
    waiting = grouped.wait.remote()
    ray.get(grouped.free.remote())
    assert ray.get(waiting, timeout=30)


def test_a_call_chooses_its_concurrency_group() -> None:
    @ray.remote(concurrency_groups={"io": 1})
    class Grouped:
        def __init__(self) -> None:
            self.event = threading.Event()

        def wait(self) -> bool:
            return self.event.wait(30)

        def free(self) -> None:
            self.event.set()

    grouped = Grouped.remote()
    waiting = grouped.wait.options(concurrency_group="io").remote()
    ray.get(grouped.free.remote())
    assert ray.get(waiting, timeout=30)


def test_async_methods_get_references_by_await() -> None:
    @ray.remote
    class Waiting:
        async def total(self, references: list) -> int:
            return sum(await asyncio.gather(*references))

    @ray.remote
    def one() -> int:
        return 1

    assert ray.get(Waiting.remote().total.remote([one.remote() for _ in range(3)])) == 3


def test_an_async_method_that_is_cancelled_raises_cancelled_error(tmp_path: Any, eventually: Callable[..., Any]) -> None:
    @ray.remote
    class Sleeping:
        async def sleep(self) -> None:
            (tmp_path / "began").touch()
            await asyncio.sleep(60)

        async def f(self) -> int:
            return 1

    sleeping = Sleeping.remote()
    reference = sleeping.sleep.remote()
    eventually((tmp_path / "began").exists)
    ray.cancel(reference)
    with pytest.raises(ray.exceptions.TaskCancelledError):
        ray.get(reference, timeout=30)
    assert ray.get(sleeping.f.remote()) == 1


def test_an_inherited_method_is_a_method() -> None:
    class Base:
        def base(self) -> str:
            return "base"

    @ray.remote
    class Derived(Base):
        pass

    assert ray.get(Derived.remote().base.remote()) == "base"


def test_a_class_derived_from_an_actor_class_is_refused() -> None:
    with pytest.raises(TypeError):

        class Derived(Counter):
            pass


def test_options_of_the_class_may_be_given_by_options() -> None:
    @ray.remote
    class Shown:
        def resources(self) -> dict:
            return ray.get_runtime_context().get_assigned_resources()

    assert ray.get(Shown.options(num_cpus=1, resources={"part": 2}).remote().resources.remote()) == {"CPU": 1.0, "part": 2.0}


def test_an_actor_holds_no_processor_by_default() -> None:
    @ray.remote
    class Shown:
        def resources(self) -> dict:
            return ray.get_runtime_context().get_assigned_resources()

    assert ray.get(Shown.remote().resources.remote()) == {}


def test_more_actors_than_processors_run() -> None:
    counters = [Counter.remote() for _ in range(8)]
    assert ray.get([counter.add.remote() for counter in counters]) == [1] * 8


def test_the_runtime_context_names_the_actor() -> None:
    @ray.remote
    class Named:
        def facts(self) -> tuple:
            context = ray.get_runtime_context()
            return context.get_actor_id(), context.get_actor_name(), context.namespace

    actor, name, namespace = ray.get(Named.options(name="compat-facts").remote().facts.remote())
    assert len(actor) == 32 and name == "compat-facts"
    assert namespace == ray.get_runtime_context().namespace


def test_the_runtime_context_has_a_handle_of_the_actor_itself() -> None:
    @ray.remote
    class Own:
        def handle(self) -> Any:
            return ray.get_runtime_context().current_actor

        def f(self) -> int:
            return 5

    own = Own.remote()
    assert ray.get(ray.get(own.handle.remote()).f.remote()) == 5


def test_the_runtime_context_says_whether_the_actor_was_restarted(eventually: Callable[..., Any]) -> None:
    @ray.remote(max_restarts=1, max_task_retries=-1)
    class Restarted:
        def was(self) -> tuple:
            return ray.get_runtime_context().was_current_actor_reconstructed, os.getpid()

    restarted = Restarted.remote()
    was, pid = ray.get(restarted.was.remote())
    assert not was
    os.kill(pid, 9)
    eventually(lambda: not os.path.exists(f"/proc/{pid}"))
    assert ray.get(restarted.was.remote(), timeout=60)[0]


def test_max_pending_calls_refuses_more(tmp_path: Any, eventually: Callable[..., Any]) -> None:
    @ray.remote(max_pending_calls=2)
    class Slow:
        def wait(self) -> None:
            while not (tmp_path / "go").exists():
                time.sleep(0.01)

    slow = Slow.remote()
    ray.get(slow.__ray_ready__.remote())
    calls = []
    with pytest.raises(ray.exceptions.PendingCallsLimitExceeded):
        for _ in range(10):
            calls.append(slow.wait.remote())
    (tmp_path / "go").touch()
    ray.get(calls, timeout=30)


def test_a_kill_takes_a_handle_only() -> None:
    with pytest.raises(ValueError):
        ray.kill("no handle")


def test_the_repr_of_a_handle_names_the_class() -> None:
    counter = Counter.remote()
    assert repr(counter).startswith("Actor(") and "Counter" in repr(counter)


def test_handles_of_one_actor_are_equal() -> None:
    counter = Counter.options(name="compat-equal").remote()
    ray.get(counter.add.remote())
    assert ray.get_actor("compat-equal") == counter
    assert hash(ray.get_actor("compat-equal")) == hash(counter)


def test_atexit_runs_when_an_actor_ends_by_itself(tmp_path: Any, eventually: Callable[..., Any]) -> None:
    @ray.remote
    class Leaving:
        def __init__(self) -> None:
            import atexit

            atexit.register((tmp_path / "left").touch)

        def leave(self) -> None:
            ray.actor.exit_actor()

    leaving = Leaving.remote()
    leaving.leave.remote()
    eventually((tmp_path / "left").exists)


def test_sigterm_ends_an_actor_as_sys_exit_does(tmp_path: Any, eventually: Callable[..., Any]) -> None:
    @ray.remote
    class Terminated:
        def __init__(self) -> None:
            import atexit

            atexit.register((tmp_path / "left").touch)

        def pid(self) -> int:
            return os.getpid()

    terminated = Terminated.remote()
    os.kill(ray.get(terminated.pid.remote()), 15)
    eventually((tmp_path / "left").exists)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get([terminated.pid.remote() for _ in range(2)], timeout=30)


def test_the_shutdown_method_runs_when_the_last_handle_goes(tmp_path: Any, eventually: Callable[..., Any]) -> None:
    @ray.remote
    class Closing:
        def __ray_shutdown__(self) -> None:
            (tmp_path / "closed").touch()

        def f(self) -> None: ...

    closing = Closing.remote()
    ray.get(closing.f.remote())
    del closing
    eventually((tmp_path / "closed").exists)


def test_a_static_method_is_a_method() -> None:
    @ray.remote
    class WithStatic:
        @staticmethod
        def double(x: int) -> int:
            return 2 * x

    assert ray.get(WithStatic.remote().double.remote(4)) == 8


def test_a_property_is_read_by_ray_call() -> None:
    @ray.remote
    class WithProperty:
        @property
        def size(self) -> int:
            return 3

    assert ray.get(WithProperty.remote().__ray_call__.remote(lambda self: self.size)) == 3


def test_remote_makes_an_actor_class_of_a_class() -> None:
    class Plain:
        def f(self) -> int:
            return 1

    assert ray.get(ray.remote(Plain).remote().f.remote()) == 1
    assert ray.get(ray.remote(num_cpus=1)(Plain).remote().f.remote()) == 1


def test_an_actor_pool_gives_results_in_order() -> None:
    pool = ray.util.ActorPool([Counter.remote(10), Counter.remote(10)])
    assert list(pool.map(lambda actor, value: actor.two.remote(), range(4))) == [(1, 2)] * 4


def test_a_queue_is_shared_between_tasks() -> None:
    queue = Queue(maxsize=10)

    @ray.remote
    def fill(queue: Any) -> None:
        for i in range(3):
            queue.put(i)

    ray.get(fill.remote(queue))
    assert [queue.get() for _ in range(3)] == [0, 1, 2]
    assert queue.empty()
    queue.shutdown()
