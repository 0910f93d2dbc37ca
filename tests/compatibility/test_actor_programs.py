"""Programs of actors: ends, restarts, groups of methods, and calls in odd places."""

from __future__ import annotations

import abc
import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    GetTimeoutError,
    RayActorError,
    RayTaskError,
    TaskCancelledError,
)

pytestmark = pytest.mark.usefixtures("session")
Eventually = Callable[..., Any]


@ray.remote(num_cpus=0)
class Counter:
    def __init__(self, value: int = 0) -> None:
        self.value = value

    def add(self, step: int = 1) -> int:
        self.value += step
        return self.value

    def pid(self) -> int:
        return os.getpid()

    def crash(self) -> None:
        os._exit(1)

    def echo(self, value: Any) -> Any:
        return value


@pytest.mark.parametrize(
    "options",
    [
        {"num_cpus": 0},
        {"num_cpus": 0.5},
        {"num_gpus": 0.5},
        {"memory": 1024 * 1024},
        {"resources": {"part": 1}},
        {"resources": {}},
        {"max_restarts": 0},
        {"max_restarts": -1},
        {"max_task_retries": 0},
        {"max_task_retries": -1, "max_restarts": 1},
        {"max_concurrency": 1},
        {"max_concurrency": 10},
        {"max_pending_calls": 5},
        {"max_pending_calls": -1},
        {"name": "of_options", "namespace": "of_options"},
        {"name": None},
        {"lifetime": None},
        {"lifetime": "non_detached"},
        {"get_if_exists": False},
        {"scheduling_strategy": "SPREAD"},
        {"scheduling_strategy": None},
        {"runtime_env": {}},
        {"allow_out_of_order_execution": True, "max_concurrency": 2},
        {"enable_task_events": False},
        {"label_selector": {}},
    ],
    ids=str,
)
def test_an_actor_is_made_with_this_option(options: dict[str, Any]) -> None:
    counter = Counter.options(**options).remote(5)
    assert ray.get(counter.add.remote(), timeout=60) == 6
    ray.kill(counter)


@pytest.mark.parametrize(
    "options",
    [
        {"num_cpus": -1},
        {"max_restarts": -2},
        {"max_task_retries": -2},
        {"concurrency_groups": {"io": 2}},
        {"max_concurrency": -1},
        {"max_pending_calls": -2},
        {"lifetime": "for ever"},
        {"get_if_exists": True},
        {"name": 5},
        {"name": ""},
        {"namespace": 5, "name": "x"},
        {"num_returns": 2},
        {"max_retries": 2},
        {"max_calls": 2},
        {"no_such_option": 1},
    ],
    ids=str,
)
def test_this_option_of_an_actor_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        Counter.options(**options).remote()


def test_an_abstract_class_has_actors_of_its_derived_classes() -> None:
    class Base(abc.ABC):
        @abc.abstractmethod
        def area(self) -> float: ...

        def twice(self) -> float:
            return 2 * self.area()

    @ray.remote
    class Square(Base):
        def __init__(self, side: float) -> None:
            self.side = side

        def area(self) -> float:
            return self.side**2

    assert ray.get(Square.remote(3).twice.remote()) == 18


def test_super_is_called_in_methods_and_constructors() -> None:
    class Base:
        def __init__(self) -> None:
            self.names = ["base"]

        def get(self) -> list[str]:
            return self.names

    @ray.remote
    class Derived(Base):
        def __init__(self) -> None:
            super().__init__()
            self.names.append("derived")

        def get(self) -> list[str]:
            return [*super().get(), "more"]

    assert ray.get(Derived.remote().get.remote()) == ["base", "derived", "more"]


def test_a_dataclass_is_an_actor() -> None:
    @ray.remote
    @dataclass
    class Point:
        x: int
        y: int = 2

        def sum(self) -> int:
            return self.x + self.y

    assert ray.get(Point.remote(x=1).sum.remote()) == 3


def test_special_methods_are_called_by_their_name() -> None:
    @ray.remote
    class Sized:
        def __len__(self) -> int:
            return 7

        def __call__(self, value: int) -> int:
            return value + 1

        def __getitem__(self, key: int) -> int:
            return key * 2

    sized = Sized.remote()
    assert ray.get([sized.__len__.remote(), sized.__call__.remote(1), sized.__getitem__.remote(4)]) == [7, 2, 8]


def test_private_methods_are_methods() -> None:
    @ray.remote
    class Private:
        def _hidden(self) -> str:
            return "hidden"

    assert ray.get(Private.remote()._hidden.remote()) == "hidden"


def test_class_attributes_belong_to_each_process() -> None:
    class Shared:
        count = 0

        def add(self) -> int:
            Shared.count += 1
            return Shared.count

    actor = ray.remote(Shared)
    one, other = actor.remote(), actor.remote()
    assert ray.get([one.add.remote(), one.add.remote(), other.add.remote()]) == [1, 2, 1]


def test_the_arguments_of_a_constructor_may_be_references() -> None:
    assert ray.get(Counter.remote(ray.put(5)).add.remote()) == 6
    assert ray.get(Counter.remote(value=ray.put(7)).add.remote()) == 8


def test_a_failed_argument_of_a_method_fails_the_call_alone() -> None:
    @ray.remote
    def fail() -> None:
        raise ValueError("wrong")

    counter = Counter.remote()
    with pytest.raises(ValueError, match="wrong"):
        ray.get(counter.echo.remote(fail.remote()))
    assert ray.get(counter.add.remote()) == 1


def test_a_call_behind_one_that_waits_for_its_argument_waits_too(tmp_path: Path) -> None:
    @ray.remote
    def late(folder: Path) -> int:
        while not (folder / "go").exists():
            time.sleep(0.01)
        return 10

    counter = Counter.remote()
    first = counter.add.remote(late.remote(tmp_path))
    second = counter.add.remote(1)
    assert not ray.wait([second], timeout=0.3)[0]
    (tmp_path / "go").write_text("")
    assert ray.get([first, second]) == [10, 11]


def test_calls_of_another_process_do_not_wait_for_ours(tmp_path: Path) -> None:
    @ray.remote
    def late(folder: Path) -> int:
        while not (folder / "go").exists():
            time.sleep(0.01)
        return 10

    @ray.remote(num_cpus=0)
    def other(counter: Any) -> int:
        return ray.get(counter.add.remote(1))

    counter = Counter.remote()
    first = counter.add.remote(late.remote(tmp_path))
    assert ray.get(other.remote(counter), timeout=60) == 1
    (tmp_path / "go").write_text("")
    assert ray.get(first) == 11


def test_an_actor_calls_itself_by_its_handle(eventually: Eventually) -> None:
    @ray.remote(num_cpus=0)
    class Own:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def start(self) -> None:
            own = ray.get_runtime_context().current_actor
            own.note.remote(1)
            own.note.remote(2)

        def note(self, value: int) -> None:
            self.seen.append(value)

        def get(self) -> list[int]:
            return self.seen

    own = Own.remote()
    ray.get(own.start.remote())
    eventually(lambda: ray.get(own.get.remote()) == [1, 2])


def test_a_handle_in_a_closure_is_the_same_actor() -> None:
    counter = Counter.remote()

    @ray.remote
    def add() -> int:
        return ray.get(counter.add.remote())

    assert sorted(ray.get([add.remote() for _ in range(3)])) == [1, 2, 3]


def test_handles_are_keys_of_dictionaries() -> None:
    counters = {Counter.remote(index): index for index in range(3)}
    assert all(ray.get(counter.add.remote(0)) == index for counter, index in counters.items())


def test_a_handle_in_a_put_object_works() -> None:
    counter = Counter.remote()
    holder = ray.get(ray.put({"counter": counter}))
    assert ray.get(holder["counter"].add.remote()) == 1
    assert ray.get(counter.add.remote()) == 2


def test_the_result_of_a_method_is_the_argument_of_another() -> None:
    one, other = Counter.remote(1), Counter.remote(10)
    assert ray.get(other.add.remote(one.add.remote())) == 12


def test_options_of_a_method_name_the_call() -> None:
    @ray.remote(num_cpus=0)
    class Named:
        def name(self) -> str | None:
            return ray.get_runtime_context().get_task_name()

    assert ray.get(Named.remote().name.options(name="mine").remote()) == "mine"


def test_the_decorator_method_takes_several_options() -> None:
    @ray.remote(num_cpus=0, concurrency_groups={"io": 1})
    class Several:
        @ray.method(num_returns=2, concurrency_group="io")
        def pair(self) -> tuple[int, str]:
            return 1, threading.current_thread().name

        @ray.method(max_task_retries=2, retry_exceptions=[ValueError])
        def retried(self) -> int:
            self.tries = getattr(self, "tries", 0) + 1
            if self.tries < 3:
                raise ValueError("again")
            return self.tries

    several = Several.remote()
    assert ray.get(several.pair.remote())[0] == 1
    assert ray.get(several.retried.remote()) == 3


@pytest.mark.parametrize("options", [{"no_such": 1}, {"num_cpus": 1}], ids=str)
def test_the_decorator_method_refuses_what_it_does_not_know(options: dict[str, Any]) -> None:
    with pytest.raises((ValueError, AssertionError)):

        class Wrong:
            @ray.method(**options)
            def method(self) -> None: ...


def test_retries_of_a_method_end(tmp_path: Path) -> None:
    @ray.remote(num_cpus=0, max_task_retries=2)
    class Failing:
        @ray.method(retry_exceptions=True)
        def fail(self) -> None:
            (tmp_path / f"{time.monotonic_ns()}").write_text("")
            raise OSError("again")

    with pytest.raises(OSError):
        ray.get(Failing.remote().fail.remote())
    assert len(list(tmp_path.iterdir())) == 3


def test_exceptions_of_methods_are_not_retried_by_default(tmp_path: Path) -> None:
    @ray.remote(num_cpus=0, max_restarts=2, max_task_retries=2)
    class Failing:
        def fail(self) -> None:
            (tmp_path / f"{time.monotonic_ns()}").write_text("")
            raise OSError("once")

    with pytest.raises(OSError):
        ray.get(Failing.remote().fail.remote())
    assert len(list(tmp_path.iterdir())) == 1


def test_an_async_method_is_retried_too() -> None:
    @ray.remote(num_cpus=0, max_task_retries=3)
    class Async:
        def __init__(self) -> None:
            self.tries = 0

        @ray.method(retry_exceptions=[KeyError])
        async def third(self) -> int:
            self.tries += 1
            if self.tries < 3:
                raise KeyError("again")
            return self.tries

    assert ray.get(Async.remote().third.remote()) == 3


def test_a_crash_with_retries_and_restarts_is_made_good(tmp_path: Path) -> None:
    # One for the crash; each 2 s of waiting for the new process take one more.
    @ray.remote(num_cpus=0, max_restarts=1, max_task_retries=20)
    class Once:
        def crash_once(self) -> int:
            if not (tmp_path / "crashed").exists():
                (tmp_path / "crashed").write_text("")
                os._exit(1)
            return os.getpid()

    assert ray.get(Once.remote().crash_once.remote(), timeout=60) > 0


def test_a_crash_without_retries_fails_the_call_and_restarts_the_actor(eventually: Eventually) -> None:
    counter = Counter.options(max_restarts=1).remote(3)
    ray.get(counter.add.remote())
    with pytest.raises(RayActorError):
        ray.get(counter.crash.remote(), timeout=60)

    def alive() -> int | None:
        try:
            return ray.get(counter.add.remote(), timeout=60)
        except ActorUnavailableError:
            return None

    assert eventually(alive) == 4


def test_an_actor_that_restarts_has_the_same_identifier_and_name(eventually: Eventually) -> None:
    counter = Counter.options(name="restarts", max_restarts=-1, max_task_retries=-1).remote()
    before = ray.get(counter.pid.remote())
    os.kill(before, signal.SIGKILL)
    assert eventually(lambda: ray.get(counter.pid.remote(), timeout=30)) != before
    assert ray.get_actor("restarts")._actor_id == counter._actor_id
    ray.kill(counter)


def test_a_killed_actor_is_not_restarted_by_default() -> None:
    counter = Counter.options(max_restarts=5).remote()
    ray.get(counter.add.remote())
    ray.kill(counter)
    # A call may overtake the kill.
    with pytest.raises(ActorDiedError):
        for _ in range(300):
            ray.get(counter.add.remote(), timeout=60)
            time.sleep(0.05)


def test_killing_twice_is_fine() -> None:
    counter = Counter.remote()
    ray.kill(counter)
    ray.kill(counter)


def test_a_kill_ends_the_calls_under_way(tmp_path: Path, eventually: Eventually) -> None:
    @ray.remote(num_cpus=0)
    class Slow:
        def forever(self) -> None:
            (tmp_path / "began").write_text("")
            time.sleep(1000)

    slow = Slow.remote()
    reference = slow.forever.remote()
    eventually((tmp_path / "began").exists)
    ray.kill(slow)
    with pytest.raises(RayActorError):
        ray.get(reference, timeout=60)


def test_a_kill_from_within_another_actor() -> None:
    @ray.remote(num_cpus=0)
    class Killer:
        def kill(self, actor: Any) -> None:
            ray.kill(actor)

    counter = Counter.remote()
    ray.get(counter.add.remote())
    ray.get(Killer.remote().kill.remote(counter))
    with pytest.raises(ActorDiedError):
        for _ in range(600):
            ray.get(counter.add.remote(), timeout=60)
            time.sleep(0.05)


def test_an_exit_is_no_error_of_what_came_before() -> None:
    @ray.remote(num_cpus=0)
    class Exits:
        def value(self) -> int:
            return 5

        def exit(self) -> None:
            ray.actor.exit_actor()

    actor = Exits.remote()
    before, exited = actor.value.remote(), actor.exit.remote()
    assert ray.get(before) == 5
    with pytest.raises(ActorDiedError, match="exit_actor"):
        ray.get(exited, timeout=60)


def test_exit_actor_ends_an_async_actor() -> None:
    @ray.remote(num_cpus=0)
    class Exits:
        async def exit(self) -> None:
            ray.actor.exit_actor()

    with pytest.raises(ActorDiedError):
        ray.get(Exits.remote().exit.remote(), timeout=60)


def test_exit_actor_is_not_restarted(tmp_path: Path) -> None:
    @ray.remote(num_cpus=0, max_restarts=3)
    class Exits:
        def __init__(self) -> None:
            (tmp_path / f"{os.getpid()}").write_text("")

        def exit(self) -> None:
            ray.actor.exit_actor()

    actor = Exits.remote()
    for _ in range(2):
        with pytest.raises(ActorDiedError):
            ray.get(actor.exit.remote(), timeout=60)
    assert len(list(tmp_path.iterdir())) == 1


def test_sys_exit_in_a_method_ends_the_actor() -> None:
    @ray.remote(num_cpus=0)
    class Exits:
        def exit(self) -> None:
            raise SystemExit(0)

        def value(self) -> int:
            return 1

    actor = Exits.remote()
    with pytest.raises(RayActorError):
        ray.get(actor.exit.remote(), timeout=60)
    with pytest.raises(RayActorError):
        ray.get(actor.value.remote(), timeout=60)


def test_an_async_method_that_never_ends_leaves_others_running() -> None:
    @ray.remote(num_cpus=0)
    class Async:
        async def forever(self) -> None:
            await asyncio.Event().wait()

        async def value(self) -> int:
            return 1

    actor = Async.remote()
    forever = actor.forever.remote()
    assert ray.get(actor.value.remote(), timeout=60) == 1
    ray.cancel(forever)
    with pytest.raises((TaskCancelledError, RayTaskError)):
        ray.get(forever, timeout=60)
    assert ray.get(actor.value.remote(), timeout=60) == 1


def test_a_call_that_waits_in_the_queue_of_an_actor_can_be_cancelled(tmp_path: Path, eventually: Eventually) -> None:
    @ray.remote(num_cpus=0)
    class Slow:
        def until(self, path: Path) -> str:
            (path.parent / "began").write_text("")
            while not path.exists():
                time.sleep(0.01)
            return "until"

        def value(self) -> int:
            return 1

    slow = Slow.remote()
    first, second, third = slow.until.remote(tmp_path / "go"), slow.value.remote(), slow.value.remote()
    eventually((tmp_path / "began").exists)
    ray.cancel(second)
    # An actor that goes on at once may begin the call before it hears of this. Oxiray answers now, Ray when the first ended.
    ray.wait([second], timeout=5)
    (tmp_path / "go").write_text("")
    with pytest.raises(TaskCancelledError):
        ray.get(second, timeout=60)
    assert ray.get([first, third], timeout=60) == ["until", 1]


def test_force_is_refused_for_methods() -> None:
    @ray.remote(num_cpus=0)
    class Slow:
        async def forever(self) -> None:
            await asyncio.Event().wait()

    slow = Slow.remote()
    reference = slow.forever.remote()
    with pytest.raises(ValueError, match="force=True is not supported for actor tasks"):
        ray.cancel(reference, force=True)


def test_a_cancelled_async_method_may_tidy_up(tmp_path: Path, eventually: Eventually) -> None:
    @ray.remote(num_cpus=0)
    class Async:
        async def forever(self) -> None:
            (tmp_path / "began").write_text("")
            try:
                await asyncio.Event().wait()
            finally:
                (tmp_path / "ended").write_text("")

    actor = Async.remote()
    reference = actor.forever.remote()
    eventually((tmp_path / "began").exists)
    ray.cancel(reference)
    with pytest.raises((TaskCancelledError, RayTaskError)):
        ray.get(reference, timeout=60)
    eventually((tmp_path / "ended").exists)


def test_a_method_sees_that_it_was_cancelled(tmp_path: Path, eventually: Eventually) -> None:
    @ray.remote(num_cpus=0, max_concurrency=2)
    class Polls:
        def poll(self) -> str:
            (tmp_path / "began").write_text("")
            while not ray.get_runtime_context().is_canceled():
                time.sleep(0.01)
            (tmp_path / "saw").write_text("")
            return "saw it"

    polls = Polls.remote()
    reference = polls.poll.remote()
    eventually((tmp_path / "began").exists)
    ray.cancel(reference)
    eventually((tmp_path / "saw").exists)


def test_groups_of_methods_do_not_wait_for_each_other() -> None:
    @ray.remote(num_cpus=0, concurrency_groups={"io": 2, "compute": 1})
    class Grouped:
        def __init__(self) -> None:
            self.event = threading.Event()

        @ray.method(concurrency_group="compute")
        def wait(self) -> bool:
            return self.event.wait(60)

        @ray.method(concurrency_group="io")
        def set(self) -> None:
            self.event.set()

        def other(self) -> int:
            return 3

    grouped = Grouped.remote()
    waiting = grouped.wait.remote()
    assert ray.get(grouped.other.remote(), timeout=60) == 3
    ray.get(grouped.set.remote(), timeout=60)
    assert ray.get(waiting, timeout=60) is True


def test_a_group_that_the_class_has_not_is_refused() -> None:
    @ray.remote(num_cpus=0, concurrency_groups={"io": 1})
    class Grouped:
        def method(self) -> None: ...

    with pytest.raises((ValueError, RayActorError, RayTaskError)):
        ray.get(Grouped.remote().method.options(concurrency_group="no such").remote(), timeout=60)


def test_async_groups_limit_their_methods() -> None:
    @ray.remote(num_cpus=0, concurrency_groups={"few": 2})
    class Grouped:
        def __init__(self) -> None:
            self.now = self.most = 0

        @ray.method(concurrency_group="few")
        async def work(self) -> None:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.05)
            self.now -= 1

        async def get(self) -> int:
            return self.most

    grouped = Grouped.remote()
    ray.get([grouped.work.remote() for _ in range(6)])
    assert ray.get(grouped.get.remote()) == 2


def test_a_threaded_actor_has_one_thread_per_call_at_most() -> None:
    @ray.remote(num_cpus=0, max_concurrency=3)
    class Threaded:
        def __init__(self) -> None:
            self.barrier = threading.Barrier(3)

        def meet(self) -> int:
            return self.barrier.wait(60)

    threaded = Threaded.remote()
    assert sorted(ray.get([threaded.meet.remote() for _ in range(3)], timeout=60)) == [0, 1, 2]


def test_thread_local_values_live_as_long_as_the_thread() -> None:
    @ray.remote(num_cpus=0, concurrency_groups={"one": 1})
    class Local:
        def __init__(self) -> None:
            self.local = threading.local()

        @ray.method(concurrency_group="one")
        def add(self) -> int:
            self.local.value = getattr(self.local, "value", 0) + 1
            return self.local.value

    local = Local.remote()
    assert ray.get([local.add.remote() for _ in range(3)]) == [1, 2, 3]


def test_a_sync_method_of_an_async_actor_runs_on_the_loop() -> None:
    @ray.remote(num_cpus=0)
    class Mixed:
        def __init__(self) -> None:
            self.event = asyncio.Event()

        async def wait(self) -> str:
            await self.event.wait()
            return "set"

        def set(self) -> None:
            self.event.set()

    mixed = Mixed.remote()
    waiting = mixed.wait.remote()
    ray.get(mixed.set.remote(), timeout=60)
    assert ray.get(waiting, timeout=60) == "set"


def test_an_async_actor_starts_tasks_of_its_own_loop() -> None:
    @ray.remote(num_cpus=0)
    class Background:
        def __init__(self) -> None:
            self.values: list[int] = []
            self.done = asyncio.Event()

        async def start(self) -> None:
            self.task = asyncio.get_running_loop().create_task(self.run())

        async def run(self) -> None:
            for value in range(3):
                await asyncio.sleep(0)
                self.values.append(value)
            self.done.set()

        async def get(self) -> list[int]:
            await self.done.wait()
            return self.values

    background = Background.remote()
    ray.get(background.start.remote())
    assert ray.get(background.get.remote(), timeout=60) == [0, 1, 2]


def test_an_async_method_awaits_several_references_at_once() -> None:
    @ray.remote
    def double(value: int) -> int:
        return 2 * value

    @ray.remote(num_cpus=0)
    class Async:
        async def gather(self) -> list[int]:
            return list(await asyncio.gather(*[double.remote(index) for index in range(4)]))

        async def first(self) -> int:
            done, _ = await asyncio.wait([double.remote(4).as_future()], return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()

    actor = Async.remote()
    assert ray.get([actor.gather.remote(), actor.first.remote()]) == [[0, 2, 4, 6], 8]


def test_run_in_executor_works_in_an_async_actor() -> None:
    @ray.remote
    def double(value: int) -> int:
        return 2 * value

    @ray.remote(num_cpus=0)
    class Async:
        async def run(self) -> int:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, lambda: ray.get(double.remote(4)))

    assert ray.get(Async.remote().run.remote(), timeout=60) == 8


def test_an_exception_of_an_async_method_is_of_its_class() -> None:
    @ray.remote(num_cpus=0)
    class Async:
        async def fail(self) -> None:
            await asyncio.sleep(0)
            raise LookupError("async")

    with pytest.raises(LookupError, match="async"):
        ray.get(Async.remote().fail.remote())


def test_an_async_generator_that_fails_keeps_its_items() -> None:
    @ray.remote(num_cpus=0)
    class Async:
        async def items(self) -> AsyncIterator[int]:
            yield 1
            await asyncio.sleep(0)
            raise ValueError("after one")

    items = Async.remote().items.options(num_returns="streaming").remote()
    assert ray.get(next(items)) == 1
    with pytest.raises(ValueError, match="after one"):
        ray.get(next(items))
    with pytest.raises(StopIteration):
        next(items)


def test_two_generators_of_one_async_actor_run_side_by_side() -> None:
    @ray.remote(num_cpus=0)
    class Async:
        def __init__(self) -> None:
            self.event = asyncio.Event()

        async def wait(self) -> AsyncIterator[int]:
            yield 1
            await self.event.wait()
            yield 2

        async def set(self) -> AsyncIterator[int]:
            self.event.set()
            yield 3

    actor = Async.remote()
    first = actor.wait.options(num_returns="streaming").remote()
    second = actor.set.options(num_returns="streaming").remote()
    assert [ray.get(one) for one in second] == [3]
    assert [ray.get(one) for one in first] == [1, 2]


def test_a_generator_of_an_actor_sees_the_state_change() -> None:
    @ray.remote(num_cpus=0)
    class Items:
        def __init__(self) -> None:
            self.count = 0

        def items(self, count: int) -> Iterator[int]:
            for _ in range(count):
                self.count += 1
                yield self.count

    items = Items.remote()
    assert [ray.get(one) for one in items.items.remote(3)] == [1, 2, 3]
    assert [ray.get(one) for one in items.items.options(num_returns="streaming").remote(2)] == [4, 5]


def test_a_constructor_may_take_its_time() -> None:
    @ray.remote(num_cpus=0)
    class Slow:
        def __init__(self) -> None:
            time.sleep(0.2)
            self.ready = True

        def get(self) -> bool:
            return self.ready

    assert ray.get(Slow.remote().get.remote()) is True


def test_a_constructor_may_make_actors_and_call_them() -> None:
    @ray.remote(num_cpus=0)
    class Outer:
        def __init__(self) -> None:
            self.value = ray.get(Counter.remote(4).add.remote())

        def get(self) -> int:
            return self.value

    assert ray.get(Outer.remote().get.remote()) == 5


def test_a_crash_in_the_constructor_is_the_death_of_the_actor() -> None:
    @ray.remote(num_cpus=0)
    class Crashes:
        def __init__(self) -> None:
            os._exit(3)

        def get(self) -> None: ...

    with pytest.raises(ActorDiedError):
        ray.get(Crashes.remote().get.remote(), timeout=60)


def test_an_exception_in_the_constructor_is_not_restarted(tmp_path: Path) -> None:
    @ray.remote(num_cpus=0, max_restarts=3)
    class Broken:
        def __init__(self) -> None:
            (tmp_path / f"{time.monotonic_ns()}").write_text("")
            raise ValueError("no")

        def get(self) -> None: ...

    with pytest.raises(ActorDiedError):
        ray.get(Broken.remote().get.remote(), timeout=60)
    assert len(list(tmp_path.iterdir())) == 1


def test_an_actor_is_gone_when_its_creator_ends() -> None:
    @ray.remote(num_cpus=0)
    class Creator:
        def __init__(self) -> None:
            self.child = Counter.remote()

        def child_handle(self) -> Any:
            return self.child

    creator = Creator.remote()
    child = ray.get(creator.child_handle.remote())
    assert ray.get(child.add.remote()) == 1
    ray.kill(creator)
    with pytest.raises(RayActorError):
        for _ in range(1000):
            ray.get(child.add.remote(), timeout=30)
            time.sleep(0.05)


def test_a_detached_actor_outlives_its_creator(eventually: Eventually) -> None:
    @ray.remote(num_cpus=0)
    class Creator:
        def make(self) -> None:
            Counter.options(name="outlives", lifetime="detached").remote(1)

    creator = Creator.remote()
    ray.get(creator.make.remote())
    ray.kill(creator)
    counter = ray.get_actor("outlives")
    assert ray.get(counter.add.remote()) == 2
    ray.kill(counter)


def test_a_name_is_looked_up_in_another_namespace() -> None:
    counter = Counter.options(name="far", namespace="another").remote(2)
    assert ray.get(ray.get_actor("far", namespace="another").add.remote()) == 3
    with pytest.raises(ValueError):
        ray.get_actor("far")
    del counter


def test_the_same_name_is_taken_once_in_each_namespace() -> None:
    one = Counter.options(name="twice", namespace="one").remote(1)
    two = Counter.options(name="twice", namespace="two").remote(2)
    assert ray.get([one.add.remote(0), two.add.remote(0)]) == [1, 2]


def test_all_names_of_all_namespaces_are_listed() -> None:
    counter = Counter.options(name="listed", namespace="there").remote()
    ray.get(counter.add.remote())
    assert {"name": "listed", "namespace": "there"} in ray.util.list_named_actors(all_namespaces=True)
    assert "listed" not in ray.util.list_named_actors()


def test_get_if_exists_makes_one_actor_for_many_callers() -> None:
    @ray.remote
    def use(index: int) -> int:
        counter = Counter.options(name="shared", get_if_exists=True, lifetime="detached").remote()
        return ray.get(counter.pid.remote())

    assert len(set(ray.get([use.remote(index) for index in range(6)]))) == 1
    ray.kill(ray.get_actor("shared"))


def test_a_named_actor_ends_with_its_handles(eventually: Eventually) -> None:
    counter = Counter.options(name="passing").remote()
    ray.get(counter.add.remote())
    del counter

    def gone() -> bool:
        try:
            ray.get_actor("passing")
        except ValueError:
            return True
        return False

    eventually(gone)


def test_pending_calls_are_counted_until_they_end(tmp_path: Path) -> None:
    @ray.remote(num_cpus=0, max_pending_calls=2)
    class Slow:
        def until(self, path: Path) -> int:
            while not path.exists():
                time.sleep(0.01)
            return 1

    slow = Slow.remote()
    references = [slow.until.remote(tmp_path / "go") for _ in range(2)]
    with pytest.raises(ray.exceptions.PendingCallsLimitExceeded):
        slow.until.remote(tmp_path / "go")
    (tmp_path / "go").write_text("")
    assert ray.get(references) == [1, 1]
    assert ray.get(slow.until.remote(tmp_path / "go")) == 1


def test_get_of_a_call_times_out_and_can_be_repeated(tmp_path: Path) -> None:
    @ray.remote(num_cpus=0)
    class Slow:
        def until(self, path: Path) -> int:
            while not path.exists():
                time.sleep(0.01)
            return 1

    reference = Slow.remote().until.remote(tmp_path / "go")
    with pytest.raises(GetTimeoutError):
        ray.get(reference, timeout=0.1)
    (tmp_path / "go").write_text("")
    assert ray.get(reference, timeout=60) == 1


def test_actors_share_an_array_without_copies_of_their_own() -> None:
    @ray.remote(num_cpus=0)
    class Reader:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def facts(self) -> tuple[bool, bool, float]:
            return self.array.flags.writeable, self.array.flags.owndata, float(self.array.sum())

    array = ray.put(np.ones(200_000))
    readers = [Reader.remote(array) for _ in range(2)]
    assert ray.get([reader.facts.remote() for reader in readers]) == [(False, False, 200_000.0)] * 2


def test_an_actor_keeps_a_reference_it_was_given_in_a_list() -> None:
    @ray.remote(num_cpus=0)
    class Keeper:
        def keep(self, references: list[Any]) -> None:
            self.references = references

        def get(self) -> Any:
            return ray.get(self.references[0])

    keeper = Keeper.remote()
    ray.get(keeper.keep.remote([ray.put("kept")]))
    assert ray.get(keeper.get.remote()) == "kept"


def test_del_of_an_instance_runs_where_the_last_handle_goes(tmp_path: Path, eventually: Eventually) -> None:
    @ray.remote(num_cpus=0)
    class Tidy:
        def __del__(self) -> None:
            (tmp_path / "deleted").write_text("")

        def ready(self) -> None: ...

    tidy = Tidy.remote()
    ray.get(tidy.ready.remote())
    del tidy
    eventually((tmp_path / "deleted").exists)


def test_ray_terminate_lets_the_queue_run_out() -> None:
    counter = Counter.remote()
    references = [counter.add.remote() for _ in range(5)]
    counter.__ray_terminate__.remote()
    assert ray.get(references) == [1, 2, 3, 4, 5]
    with pytest.raises(RayActorError):
        ray.get(counter.add.remote(), timeout=60)


def test_ray_call_passes_arguments() -> None:
    counter = Counter.remote(5)
    assert ray.get(counter.__ray_call__.remote(lambda self, more, *, twice: (self.value + more) * twice, 1, twice=2)) == 12


def test_an_actor_with_a_gpu_sees_it_in_every_method() -> None:
    @ray.remote(num_gpus=1, num_cpus=0)
    class Gpu:
        def __init__(self) -> None:
            self.first = ray.get_gpu_ids()

        def again(self) -> tuple[list[Any], list[Any], str]:
            return self.first, ray.get_gpu_ids(), os.environ["CUDA_VISIBLE_DEVICES"]

    first, again, variable = ray.get(Gpu.remote().again.remote())
    assert first == again
    assert [str(one) for one in first] == variable.split(",")
