"""`cancel`: each state a call can be in, and each kind of call."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import ray
from ray.exceptions import RayTaskError, TaskCancelledError, WorkerCrashedError

pytestmark = pytest.mark.usefixtures("cluster")


@ray.remote
def touch_and_wait(begun: Path, end: Path) -> str:
    begun.touch()
    while not end.exists():
        time.sleep(0.002)
    return "ended"


@ray.remote
def touch(path: Path, *_: object) -> str:
    path.touch()
    return "touched"


@ray.remote
def echo(value: object) -> object:
    return value


@ray.remote
class Methods:
    def touch_and_wait(self, begun, end):
        begun.touch()
        while not end.exists():
            time.sleep(0.002)
        return "ended"

    def until_cancelled(self, begun):
        begun.touch()
        while not ray.get_runtime_context().is_canceled():
            time.sleep(0.002)
        return "saw it"

    def raise_when_cancelled(self, begun):
        begun.touch()
        while not ray.get_runtime_context().is_canceled():
            time.sleep(0.002)
        raise KeyError("cleaned up")

    def is_canceled(self):
        return ray.get_runtime_context().is_canceled()


class TestTasks:
    def test_a_task_that_waits_for_arguments_never_runs(self, tmp_path, until) -> None:
        begun, end, ran = tmp_path / "begun", tmp_path / "end", tmp_path / "ran"
        slow = touch_and_wait.remote(begun, end)
        waiting = touch.remote(ran, slow)
        until(begun.exists)
        ray.cancel(waiting)
        with pytest.raises(TaskCancelledError, match="never ran"):
            ray.get(waiting, timeout=5)
        end.touch()
        assert ray.get(slow, timeout=20) == "ended"
        assert not ran.exists()

    def test_a_task_that_waits_for_resources_never_runs(self, tmp_path, until) -> None:
        begun, end, ran = tmp_path / "begun", tmp_path / "end", tmp_path / "ran"
        holder = touch_and_wait.options(num_cpus=4).remote(begun, end)
        until(begun.exists)
        waiting = [touch.remote(ran) for _ in range(20)]
        for reference in waiting:
            ray.cancel(reference)
        for reference in waiting:
            with pytest.raises(TaskCancelledError) as caught:
                ray.get(reference, timeout=5)
            assert caught.value.task_id == reference.task_id().hex()
        end.touch()
        assert ray.get(holder, timeout=20) == "ended"
        assert not ran.exists()
        assert ray.get(echo.remote(1), timeout=20) == 1

    def test_of_many_queued_only_the_cancelled_end(self, tmp_path, until) -> None:
        begun, end = tmp_path / "begun", tmp_path / "end"
        ray.get([echo.remote(i) for i in range(200)])
        holder = touch_and_wait.options(num_cpus=4).remote(begun, end)
        until(begun.exists)
        queued = [echo.remote(i) for i in range(100)]
        for reference in queued[::2]:
            ray.cancel(reference)
        end.touch()
        assert ray.get(queued[1::2], timeout=20) == list(range(1, 100, 2))
        for reference in queued[::2]:
            with pytest.raises(TaskCancelledError):
                ray.get(reference, timeout=5)
        assert ray.get(holder, timeout=20) == "ended"

    def test_a_running_task_meets_keyboard_interrupt(self, tmp_path, until) -> None:
        @ray.remote
        def note(begun, met):
            begun.touch()
            try:
                while True:
                    pass
            except KeyboardInterrupt:
                met.touch()
                raise

        running = note.remote(tmp_path / "begun", tmp_path / "met")
        until((tmp_path / "begun").exists)
        ray.cancel(running)
        with pytest.raises(TaskCancelledError) as caught:
            ray.get(running, timeout=10)
        assert isinstance(caught.value, RayTaskError)
        assert "in note" in str(caught.value), "the traceback tells where it was interrupted"
        assert (tmp_path / "met").exists()

    @pytest.mark.parametrize("how", ["sleep", "get", "wait", "nested get", "lock", "process", "thread's get"])
    def test_waiting_is_interrupted(self, how, tmp_path, until) -> None:
        @ray.remote
        def wait(begun, never):
            begun.touch()
            if how == "sleep":
                time.sleep(1000)
            elif how == "get":
                ray.get(never[0])
            elif how == "wait":
                ray.wait(never)
            elif how == "nested get":
                ray.get(echo.remote(never[0]))
            elif how == "lock":
                lock = threading.Lock()
                lock.acquire()
                lock.acquire()
            elif how == "process":
                subprocess.run([sys.executable, "-c", "import time; time.sleep(1000)"], check=True)
            else:
                waiter = threading.Thread(target=lambda: ray.get(never[0]), daemon=True)
                waiter.start()
                waiter.join()

        never = touch_and_wait.options(num_cpus=0).remote(tmp_path / "other", tmp_path / "end")
        running = wait.remote(tmp_path / "begun", [never])
        until((tmp_path / "begun").exists)
        ray.cancel(running)
        with pytest.raises(TaskCancelledError):
            ray.get(running, timeout=10)
        (tmp_path / "end").touch()
        assert ray.get(never, timeout=20) == "ended"
        assert ray.get(echo.remote("still served"), timeout=20) == "still served"

    def test_a_task_that_ignores_it_returns(self, tmp_path, until) -> None:
        @ray.remote
        def stubborn(begun, met):
            begun.touch()
            try:
                time.sleep(1000)
            except KeyboardInterrupt:
                met.touch()
            return "went on", ray.get_runtime_context().is_canceled()

        running = stubborn.remote(tmp_path / "begun", tmp_path / "met")
        until((tmp_path / "begun").exists)
        ray.cancel(running)
        assert ray.get(running, timeout=10) == ("went on", True)
        assert (tmp_path / "met").exists()

    def test_one_that_ignores_it_can_be_cancelled_again(self, tmp_path, until) -> None:
        @ray.remote
        def stubborn(begun, met):
            begun.touch()
            try:
                time.sleep(1000)
            except KeyboardInterrupt:
                met.touch()
            time.sleep(1000)

        running = stubborn.remote(tmp_path / "begun", tmp_path / "met")
        until((tmp_path / "begun").exists)
        ray.cancel(running)
        until((tmp_path / "met").exists)
        ray.cancel(running)
        with pytest.raises(TaskCancelledError):
            ray.get(running, timeout=10)

    def test_what_it_raises_instead_is_its_error(self, tmp_path, until) -> None:
        @ray.remote(retry_exceptions=True, max_retries=5)
        def convert(begun):
            with begun.open("a") as file:
                file.write("x")
            try:
                time.sleep(1000)
            except KeyboardInterrupt:
                raise KeyError("converted") from None

        running = convert.remote(tmp_path / "begun")
        until((tmp_path / "begun").exists)
        ray.cancel(running)
        with pytest.raises(KeyError, match="converted"):
            ray.get(running, timeout=10)
        assert (tmp_path / "begun").read_text() == "x", "a cancelled task is not retried"

    def test_an_interrupt_that_a_destructor_swallows_comes_again(self, tmp_path, until) -> None:
        class Slow:
            def __del__(self):
                (tmp_path / "begun").touch()
                time.sleep(1000)

        @ray.remote
        def drop():
            Slow()
            while True:
                time.sleep(0.001)

        running = drop.remote()
        until((tmp_path / "begun").exists)
        ray.cancel(running)
        with pytest.raises(TaskCancelledError):
            ray.get(running, timeout=10)

    def test_force_kills_the_worker_and_what_it_started(self, tmp_path, until) -> None:
        @ray.remote(max_retries=5)
        def deaf(pids):
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
            with pids.open("a") as file:
                file.write(f"{os.getpid()} {child.pid} ")
            while True:
                try:
                    time.sleep(1000)
                except KeyboardInterrupt:
                    pass

        pids = tmp_path / "pids"
        running = deaf.remote(pids)
        until(lambda: pids.exists() and pids.read_text().endswith(" "))
        ray.cancel(running, force=True)
        with pytest.raises((TaskCancelledError, WorkerCrashedError)):
            ray.get(running, timeout=10)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.read_text().split()))
        assert len(pids.read_text().split()) == 2, "a cancelled task is not retried"
        assert ray.get(echo.remote(2), timeout=20) == 2

    def test_force_on_what_has_not_begun(self, tmp_path, until) -> None:
        begun, end = tmp_path / "begun", tmp_path / "end"
        holder = touch_and_wait.options(num_cpus=4).remote(begun, end)
        until(begun.exists)
        waiting = echo.remote(1)
        ray.cancel(waiting, force=True)
        with pytest.raises(TaskCancelledError):
            ray.get(waiting, timeout=5)
        end.touch()
        assert ray.get(holder, timeout=20) == "ended", "its worker was not touched"

    def test_what_depends_on_a_cancelled_task_is_cancelled(self, tmp_path, until) -> None:
        begun, ran = tmp_path / "begun", tmp_path / "ran"
        running = touch_and_wait.remote(begun, tmp_path / "never")
        dependent = touch.remote(ran, running)
        until(begun.exists)
        ray.cancel(running)
        with pytest.raises(TaskCancelledError):
            ray.get(dependent, timeout=10)
        assert not ran.exists()

    def test_every_result_of_a_cancelled_task_is_the_error(self, tmp_path, until) -> None:
        begun = tmp_path / "begun"
        results = touch_and_wait.options(num_returns=3).remote(begun, tmp_path / "never")
        until(begun.exists)
        ray.cancel(results[1])
        for result in results:
            with pytest.raises(TaskCancelledError):
                ray.get(result, timeout=10)

    def test_what_is_over_stays(self) -> None:
        done = echo.remote("kept")
        assert ray.get(done) == "kept"
        ray.cancel(done)
        ray.cancel(done, force=True)
        kept = ray.put("put")
        ray.cancel(kept)
        assert (ray.get(done), ray.get(kept)) == ("kept", "put")

    @pytest.mark.parametrize("wrong", ["text", None, 3, []])
    def test_only_references_are_cancelled(self, wrong) -> None:
        with pytest.raises(TypeError, match="cancel"):
            ray.cancel(wrong)

    def test_a_list_of_references_is_refused(self) -> None:
        with pytest.raises(TypeError, match="each"):
            ray.cancel([echo.remote(1)])

    def test_whoever_was_given_the_reference_can_cancel(self, tmp_path, until) -> None:
        @ray.remote
        def cancel(references, force):
            ray.cancel(references[0], force=force)

        for number, force in enumerate([False, True]):
            begun = tmp_path / f"begun{number}"
            running = touch_and_wait.options(max_retries=0).remote(begun, tmp_path / "never")
            until(begun.exists)
            ray.get(cancel.remote([running], force), timeout=20)
            with pytest.raises(TaskCancelledError):
                ray.get(running, timeout=10)

    def test_a_user_s_own_keyboard_interrupt_is_a_cancelled_task(self) -> None:
        @ray.remote
        def interrupt():
            raise KeyboardInterrupt("mine")

        with pytest.raises(TaskCancelledError, match="mine"):
            ray.get(interrupt.remote(), timeout=10)

    def test_base_exceptions_are_wrapped(self) -> None:
        class Odd(BaseException):
            pass

        @ray.remote
        def fail(kind):
            raise {"odd": Odd("odd"), "exit": GeneratorExit("exit")}[kind]

        @ray.remote
        def fail_as_group():
            raise BaseExceptionGroup("group", [KeyboardInterrupt("one"), ValueError("two")])

        with pytest.raises(RayTaskError, match="odd") as caught:
            ray.get(fail.remote("odd"), timeout=10)
        assert type(caught.value.cause).__name__ == "Odd"
        with pytest.raises(RayTaskError) as caught:
            ray.get(fail.remote("exit"), timeout=10)
        assert isinstance(caught.value.cause, GeneratorExit)
        with pytest.raises(RayTaskError) as caught:
            ray.get(fail_as_group.remote(), timeout=10)
        assert [type(one) for one in caught.value.cause.exceptions] == [KeyboardInterrupt, ValueError]


class TestChildren:
    @pytest.mark.parametrize("force", [False, True])
    def test_children_and_theirs_go_too(self, force, tmp_path, until) -> None:
        @ray.remote(num_cpus=0)
        def leaf(name):
            (tmp_path / f"begun-{name}").touch()
            try:
                time.sleep(1000)
            except KeyboardInterrupt:
                (tmp_path / f"ended-{name}").touch()
                raise

        @ray.remote(num_cpus=0)
        def parent(name, depth):
            make = leaf.remote if depth == 0 else parent.remote
            arguments = () if depth == 0 else (depth - 1,)
            ray.get([make(f"{name}{number}", *arguments) for number in range(2)])

        root = parent.remote("", 1)
        names = ["00", "01", "10", "11"]
        until(lambda: all((tmp_path / f"begun-{name}").exists() for name in names))
        ray.cancel(root, force=force)
        with pytest.raises((TaskCancelledError, WorkerCrashedError)):
            ray.get(root, timeout=10)
        if not force:
            until(lambda: all((tmp_path / f"ended-{name}").exists() for name in names))

    def test_children_stay_where_that_is_asked_for(self, tmp_path, until) -> None:
        begun, end = tmp_path / "begun", tmp_path / "end"

        @ray.remote
        class Keeper:
            def __init__(self):
                self.kept = []

            def keep(self, references):
                self.kept += references

            def get(self):
                return ray.get(self.kept)

        @ray.remote
        def parent(keeper):
            child = touch_and_wait.options(num_cpus=0).remote(begun, end)
            ray.get(keeper.keep.remote([child]))
            time.sleep(1000)

        keeper = Keeper.remote()
        running = parent.remote(keeper)
        until(begun.exists)
        ray.cancel(running, recursive=False)
        with pytest.raises(TaskCancelledError):
            ray.get(running, timeout=10)
        end.touch()
        assert ray.get(keeper.get.remote(), timeout=20) == ["ended"]

    def test_calls_of_actors_go_too(self, tmp_path, until) -> None:
        @ray.remote
        def parent(actor, begun):
            ray.get(actor.until_cancelled.remote(begun))

        actor = Methods.remote()
        running = parent.remote(actor, tmp_path / "begun")
        until((tmp_path / "begun").exists)
        ray.cancel(running)
        with pytest.raises(TaskCancelledError):
            ray.get(running, timeout=10)
        assert ray.get(actor.is_canceled.remote(), timeout=10) is False, "the method saw it, and the next one may run"

    def test_what_an_actor_s_method_called_goes_with_it(self, tmp_path, until) -> None:
        @ray.remote
        class Parent:
            def call(self, begun):
                ray.get(touch_and_wait.remote(begun, tmp_path / "never"))

            async def call_and_await(self, begun):
                await touch_and_wait.remote(begun, tmp_path / "never")

        @ray.remote
        class Plain:
            def call(self, begun):
                ray.get(touch_and_wait.remote(begun, tmp_path / "never"))

        for name, call in {"plain": Plain.remote().call, "async": Parent.remote().call_and_await}.items():
            running = call.remote(tmp_path / name)
            until((tmp_path / name).exists)
            ray.cancel(running)
            with pytest.raises(TaskCancelledError):
                ray.get(running, timeout=10)


class TestActors:
    def test_a_queued_call_never_runs(self, tmp_path, until) -> None:
        actor = Methods.remote()
        first = actor.touch_and_wait.remote(tmp_path / "begun", tmp_path / "end")
        queued = [actor.touch_and_wait.remote(tmp_path / "queued", tmp_path / "end") for _ in range(5)]
        last = actor.is_canceled.remote()
        until((tmp_path / "begun").exists)
        for reference in queued:
            ray.cancel(reference)
        for reference in queued:
            with pytest.raises(TaskCancelledError, match="never ran"):
                ray.get(reference, timeout=5)
        (tmp_path / "end").touch()
        assert ray.get([first, last], timeout=10) == ["ended", False]
        assert not (tmp_path / "queued").exists()

    def test_a_call_whose_arguments_are_awaited_never_runs(self, tmp_path, until) -> None:
        actor = Methods.remote()
        slow = touch_and_wait.remote(tmp_path / "begun", tmp_path / "end")
        waiting = actor.touch_and_wait.remote(tmp_path / "ran", slow)
        behind = actor.is_canceled.remote()
        until((tmp_path / "begun").exists)
        ray.cancel(waiting)
        with pytest.raises(TaskCancelledError):
            ray.get(waiting, timeout=5)
        assert ray.get(behind, timeout=10) is False, "it holds up nobody any more"
        (tmp_path / "end").touch()
        assert ray.get(slow, timeout=10) == "ended"
        assert not (tmp_path / "ran").exists()

    def test_a_call_of_an_actor_that_is_not_there_yet(self, tmp_path, until) -> None:
        begun, end = tmp_path / "begun", tmp_path / "end"
        holder = touch_and_wait.options(num_cpus=4).remote(begun, end)
        until(begun.exists)
        actor = Methods.options(num_cpus=1).remote()
        waiting = actor.touch_and_wait.remote(tmp_path / "ran", end)
        ray.cancel(waiting)
        with pytest.raises(TaskCancelledError):
            ray.get(waiting, timeout=5)
        end.touch()
        assert ray.get(actor.is_canceled.remote(), timeout=20) is False
        assert ray.get(holder, timeout=10) == "ended"
        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize("concurrency", [1, 4])
    def test_a_running_call_is_told_and_not_interrupted(self, concurrency, tmp_path, until) -> None:
        actor = Methods.options(max_concurrency=concurrency).remote()
        told = actor.until_cancelled.remote(tmp_path / "told")
        until((tmp_path / "told").exists)
        ray.cancel(told)
        with pytest.raises(TaskCancelledError):
            ray.get(told, timeout=10)
        cleaned = actor.raise_when_cancelled.remote(tmp_path / "cleaned")
        until((tmp_path / "cleaned").exists)
        ray.cancel(cleaned)
        with pytest.raises(KeyError, match="cleaned up"):
            ray.get(cleaned, timeout=10)
        assert ray.get(actor.is_canceled.remote(), timeout=10) is False

    def test_of_concurrent_calls_only_the_cancelled_is_told(self, tmp_path, until) -> None:
        actor = Methods.options(max_concurrency=4).remote()
        cancelled = actor.until_cancelled.remote(tmp_path / "one")
        other = actor.touch_and_wait.remote(tmp_path / "two", tmp_path / "end")
        until(lambda: (tmp_path / "one").exists() and (tmp_path / "two").exists())
        ray.cancel(cancelled)
        with pytest.raises(TaskCancelledError):
            ray.get(cancelled, timeout=10)
        (tmp_path / "end").touch()
        assert ray.get(other, timeout=10) == "ended"

    def test_an_async_call_meets_cancelled_error(self, tmp_path, until) -> None:
        @ray.remote
        class Async:
            async def wait(self, begun, met):
                begun.touch()
                try:
                    await asyncio.sleep(1000)
                except asyncio.CancelledError:
                    met.touch()
                    raise

            async def swallow(self, begun):
                begun.touch()
                try:
                    await asyncio.sleep(1000)
                except asyncio.CancelledError:
                    return "swallowed"

            async def ping(self):
                return "pong"

        actor = Async.remote()
        waiting = actor.wait.remote(tmp_path / "begun", tmp_path / "met")
        until((tmp_path / "begun").exists)
        ray.cancel(waiting)
        with pytest.raises(TaskCancelledError):
            ray.get(waiting, timeout=10)
        assert (tmp_path / "met").exists()
        swallowed = actor.swallow.remote(tmp_path / "swallow")
        until((tmp_path / "swallow").exists)
        ray.cancel(swallowed)
        with pytest.raises(TaskCancelledError):
            ray.get(swallowed, timeout=10)
        assert ray.get(actor.ping.remote(), timeout=10) == "pong"

    def test_an_async_call_that_has_no_place_yet_never_runs(self, tmp_path, until) -> None:
        @ray.remote(max_concurrency=1)
        class Async:
            async def wait(self, begun, end):
                begun.touch()
                while not end.exists():
                    await asyncio.sleep(0.002)
                return "ended"

        actor = Async.remote()
        first = actor.wait.remote(tmp_path / "begun", tmp_path / "end")
        until((tmp_path / "begun").exists)
        second = actor.wait.remote(tmp_path / "second", tmp_path / "end")
        ray.cancel(second)
        with pytest.raises(TaskCancelledError):
            ray.get(second, timeout=10)
        (tmp_path / "end").touch()
        assert ray.get(first, timeout=10) == "ended"
        assert not (tmp_path / "second").exists()

    def test_force_is_refused(self, tmp_path, until) -> None:
        actor = Methods.remote()
        running = actor.touch_and_wait.remote(tmp_path / "begun", tmp_path / "end")
        until((tmp_path / "begun").exists)
        with pytest.raises(ValueError, match="kill"):
            ray.cancel(running, force=True)
        (tmp_path / "end").touch()
        assert ray.get(running, timeout=10) == "ended"
        ray.cancel(running, force=True)

    def test_is_canceled_is_for_plain_calls_of_workers(self) -> None:
        @ray.remote
        class Async:
            async def ask(self):
                return ray.get_runtime_context().is_canceled()

        with pytest.raises(RuntimeError, match="driver"):
            ray.get_runtime_context().is_canceled()
        with pytest.raises(RuntimeError, match="async"):
            ray.get(Async.remote().ask.remote(), timeout=10)
