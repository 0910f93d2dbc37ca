"""`cancel` of what a call has called in turn, and of the calls of actors."""

from __future__ import annotations

import asyncio
import time

import pytest
import ray
from marking import Methods, touch_and_wait
from ray.exceptions import TaskCancelledError, WorkerCrashedError
from watching import wait_until

pytestmark = pytest.mark.usefixtures("cluster")


class TestChildren:
    @pytest.mark.parametrize("force", [False, True])
    def test_children_and_theirs_go_too(self, force, tmp_path) -> None:
        @ray.remote(num_cpus=0)
        def leaf(name):
            try:
                (tmp_path / f"begun-{name}").touch()
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
        wait_until(lambda: all((tmp_path / f"begun-{name}").exists() for name in names))
        ray.cancel(root, force=force)
        with pytest.raises((TaskCancelledError, WorkerCrashedError)):
            ray.get(root, timeout=60)
        if not force:
            wait_until(lambda: all((tmp_path / f"ended-{name}").exists() for name in names))

    def test_children_stay_where_that_is_asked_for(self, tmp_path) -> None:
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
            (tmp_path / "kept").touch()
            time.sleep(1000)

        keeper = Keeper.remote()
        running = parent.remote(keeper)
        wait_until(lambda: begun.exists() and (tmp_path / "kept").exists())
        ray.cancel(running, recursive=False)
        with pytest.raises(TaskCancelledError):
            ray.get(running, timeout=60)
        end.touch()
        assert ray.get(keeper.get.remote(), timeout=20) == ["ended"]

    def test_calls_of_actors_go_too(self, tmp_path) -> None:
        @ray.remote
        def parent(actor, begun):
            ray.get(actor.until_cancelled.remote(begun))

        actor = Methods.remote()
        running = parent.remote(actor, tmp_path / "begun")
        wait_until((tmp_path / "begun").exists)
        ray.cancel(running)
        with pytest.raises(TaskCancelledError):
            ray.get(running, timeout=60)
        assert ray.get(actor.is_canceled.remote(), timeout=60) is False, "the method saw it, and the next one may run"

    def test_what_an_actor_s_method_called_goes_with_it(self, tmp_path) -> None:
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
            wait_until((tmp_path / name).exists)
            ray.cancel(running)
            with pytest.raises(TaskCancelledError):
                ray.get(running, timeout=60)


class TestActors:
    def test_a_queued_call_never_runs(self, tmp_path) -> None:
        actor = Methods.remote()
        first = actor.touch_and_wait.remote(tmp_path / "begun", tmp_path / "end")
        queued = [actor.touch_and_wait.remote(tmp_path / "queued", tmp_path / "end") for _ in range(5)]
        last = actor.is_canceled.remote()
        wait_until((tmp_path / "begun").exists)
        for reference in queued:
            ray.cancel(reference)
        for reference in queued:
            with pytest.raises(TaskCancelledError, match="never ran"):
                ray.get(reference, timeout=60)
        (tmp_path / "end").touch()
        assert ray.get([first, last], timeout=60) == ["ended", False]
        assert not (tmp_path / "queued").exists()

    def test_a_call_whose_arguments_are_awaited_never_runs(self, tmp_path) -> None:
        actor = Methods.remote()
        slow = touch_and_wait.remote(tmp_path / "begun", tmp_path / "end")
        waiting = actor.touch_and_wait.remote(tmp_path / "ran", slow)
        behind = actor.is_canceled.remote()
        wait_until((tmp_path / "begun").exists)
        ray.cancel(waiting)
        with pytest.raises(TaskCancelledError):
            ray.get(waiting, timeout=60)
        assert ray.get(behind, timeout=60) is False, "it holds up nobody any more"
        (tmp_path / "end").touch()
        assert ray.get(slow, timeout=60) == "ended"
        assert not (tmp_path / "ran").exists()

    def test_a_call_of_an_actor_that_is_not_there_yet(self, tmp_path) -> None:
        begun, end = tmp_path / "begun", tmp_path / "end"
        holder = touch_and_wait.options(num_cpus=4).remote(begun, end)
        wait_until(begun.exists)
        actor = Methods.options(num_cpus=1).remote()
        waiting = actor.touch_and_wait.remote(tmp_path / "ran", end)
        ray.cancel(waiting)
        with pytest.raises(TaskCancelledError):
            ray.get(waiting, timeout=60)
        end.touch()
        assert ray.get(actor.is_canceled.remote(), timeout=20) is False
        assert ray.get(holder, timeout=60) == "ended"
        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize("concurrency", [1, 4])
    def test_a_running_call_is_told_and_not_interrupted(self, concurrency, tmp_path) -> None:
        actor = Methods.options(max_concurrency=concurrency).remote()
        told = actor.until_cancelled.remote(tmp_path / "told")
        wait_until((tmp_path / "told").exists)
        ray.cancel(told)
        with pytest.raises(TaskCancelledError):
            ray.get(told, timeout=60)
        cleaned = actor.raise_when_cancelled.remote(tmp_path / "cleaned")
        wait_until((tmp_path / "cleaned").exists)
        ray.cancel(cleaned)
        with pytest.raises(KeyError, match="cleaned up"):
            ray.get(cleaned, timeout=60)
        assert ray.get(actor.is_canceled.remote(), timeout=60) is False

    def test_of_concurrent_calls_only_the_cancelled_is_told(self, tmp_path) -> None:
        actor = Methods.options(max_concurrency=4).remote()
        cancelled = actor.until_cancelled.remote(tmp_path / "one")
        other = actor.touch_and_wait.remote(tmp_path / "two", tmp_path / "end")
        wait_until(lambda: (tmp_path / "one").exists() and (tmp_path / "two").exists())
        ray.cancel(cancelled)
        with pytest.raises(TaskCancelledError):
            ray.get(cancelled, timeout=60)
        (tmp_path / "end").touch()
        assert ray.get(other, timeout=60) == "ended"

    def test_an_async_call_meets_cancelled_error(self, tmp_path) -> None:
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
        wait_until((tmp_path / "begun").exists)
        ray.cancel(waiting)
        with pytest.raises(TaskCancelledError):
            ray.get(waiting, timeout=60)
        assert (tmp_path / "met").exists()
        swallowed = actor.swallow.remote(tmp_path / "swallow")
        wait_until((tmp_path / "swallow").exists)
        ray.cancel(swallowed)
        with pytest.raises(TaskCancelledError):
            ray.get(swallowed, timeout=60)
        assert ray.get(actor.ping.remote(), timeout=60) == "pong"

    def test_an_async_call_that_has_no_place_yet_never_runs(self, tmp_path) -> None:
        @ray.remote(max_concurrency=1)
        class Async:
            async def wait(self, begun, end):
                begun.touch()
                while not end.exists():
                    await asyncio.sleep(0.002)
                return "ended"

        actor = Async.remote()
        first = actor.wait.remote(tmp_path / "begun", tmp_path / "end")
        wait_until((tmp_path / "begun").exists)
        second = actor.wait.remote(tmp_path / "second", tmp_path / "end")
        ray.cancel(second)
        with pytest.raises(TaskCancelledError):
            ray.get(second, timeout=60)
        (tmp_path / "end").touch()
        assert ray.get(first, timeout=60) == "ended"
        assert not (tmp_path / "second").exists()

    def test_force_is_refused(self, tmp_path) -> None:
        actor = Methods.remote()
        running = actor.touch_and_wait.remote(tmp_path / "begun", tmp_path / "end")
        wait_until((tmp_path / "begun").exists)
        with pytest.raises(ValueError, match="kill"):
            ray.cancel(running, force=True)
        (tmp_path / "end").touch()
        assert ray.get(running, timeout=60) == "ended"
        ray.cancel(running, force=True)

    def test_is_canceled_is_for_plain_calls_of_workers(self) -> None:
        @ray.remote
        class Async:
            async def ask(self):
                return ray.get_runtime_context().is_canceled()

        with pytest.raises(RuntimeError, match="driver"):
            ray.get_runtime_context().is_canceled()
        with pytest.raises(RuntimeError, match="async"):
            ray.get(Async.remote().ask.remote(), timeout=60)
