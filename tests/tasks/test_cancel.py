"""`cancel` of tasks, in each state that one can be in."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import ray
from marking import echo, touch, touch_and_wait
from ray.exceptions import RayTaskError, TaskCancelledError, WorkerCrashedError
from watching import wait_until

pytestmark = pytest.mark.usefixtures("cluster")


@ray.remote
def stubborn(begun: Path, met: Path, seconds: float) -> tuple[str, bool]:
    """Ignores the first interrupt, and rests for a while then."""
    try:
        begun.touch()
        time.sleep(1000)
    except KeyboardInterrupt:
        met.touch()
    time.sleep(seconds)
    return "went on", ray.get_runtime_context().is_canceled()


class TestTasks:
    def test_a_task_that_waits_for_arguments_never_runs(self, tmp_path) -> None:
        begun, end, ran = tmp_path / "begun", tmp_path / "end", tmp_path / "ran"
        slow = touch_and_wait.remote(begun, end)
        waiting = touch.remote(ran, slow)
        wait_until(begun.exists)
        ray.cancel(waiting)
        with pytest.raises(TaskCancelledError, match="never ran"):
            ray.get(waiting, timeout=60)
        end.touch()
        assert ray.get(slow, timeout=20) == "ended"
        assert not ran.exists()

    def test_a_task_that_waits_for_resources_never_runs(self, tmp_path) -> None:
        begun, end, ran = tmp_path / "begun", tmp_path / "end", tmp_path / "ran"
        holder = touch_and_wait.options(num_cpus=4).remote(begun, end)
        wait_until(begun.exists)
        waiting = [touch.remote(ran) for _ in range(20)]
        for reference in waiting:
            ray.cancel(reference)
        for reference in waiting:
            with pytest.raises(TaskCancelledError) as caught:
                ray.get(reference, timeout=60)
            assert caught.value.task_id == reference.task_id().hex()
        end.touch()
        assert ray.get(holder, timeout=20) == "ended"
        assert not ran.exists()
        assert ray.get(echo.remote(1), timeout=20) == 1

    def test_of_many_queued_only_the_cancelled_end(self, tmp_path) -> None:
        begun, end = tmp_path / "begun", tmp_path / "end"
        ray.get([echo.remote(i) for i in range(200)])
        holder = touch_and_wait.options(num_cpus=4).remote(begun, end)
        wait_until(begun.exists)
        queued = [echo.remote(i) for i in range(100)]
        for reference in queued[::2]:
            ray.cancel(reference)
        end.touch()
        assert ray.get(queued[1::2], timeout=20) == list(range(1, 100, 2))
        for reference in queued[::2]:
            with pytest.raises(TaskCancelledError):
                ray.get(reference, timeout=60)
        assert ray.get(holder, timeout=20) == "ended"

    def test_a_running_task_meets_keyboard_interrupt(self, tmp_path) -> None:
        @ray.remote
        def note(begun, met):
            try:
                begun.touch()
                while True:
                    pass
            except KeyboardInterrupt:
                met.touch()
                raise

        running = note.remote(tmp_path / "begun", tmp_path / "met")
        wait_until((tmp_path / "begun").exists)
        ray.cancel(running)
        with pytest.raises(TaskCancelledError) as caught:
            ray.get(running, timeout=60)
        assert isinstance(caught.value, RayTaskError)
        assert "in note" in str(caught.value), "the traceback tells where it was interrupted"
        assert (tmp_path / "met").exists()

    @pytest.mark.parametrize("how", ["sleep", "get", "wait", "nested get", "lock", "process", "thread's get"])
    def test_waiting_is_interrupted(self, how, tmp_path) -> None:
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
        wait_until((tmp_path / "begun").exists)
        ray.cancel(running)
        with pytest.raises(TaskCancelledError):
            ray.get(running, timeout=60)
        (tmp_path / "end").touch()
        assert ray.get(never, timeout=20) == "ended"
        assert ray.get(echo.remote("still served"), timeout=20) == "still served"

    def test_a_task_that_ignores_it_returns(self, tmp_path) -> None:
        running = stubborn.remote(tmp_path / "begun", tmp_path / "met", 0)
        wait_until((tmp_path / "begun").exists)
        ray.cancel(running)
        assert ray.get(running, timeout=60) == ("went on", True)
        assert (tmp_path / "met").exists()

    def test_one_that_ignores_it_can_be_cancelled_again(self, tmp_path) -> None:
        running = stubborn.remote(tmp_path / "begun", tmp_path / "met", 1000)
        wait_until((tmp_path / "begun").exists)
        ray.cancel(running)
        wait_until((tmp_path / "met").exists)
        ray.cancel(running)
        with pytest.raises(TaskCancelledError):
            ray.get(running, timeout=60)

    def test_what_it_raises_instead_is_its_error(self, tmp_path) -> None:
        @ray.remote(retry_exceptions=True, max_retries=5)
        def convert(begun):
            try:
                with begun.open("a") as file:
                    file.write("x")
                time.sleep(1000)
            except KeyboardInterrupt:
                raise KeyError("converted") from None

        running = convert.remote(tmp_path / "begun")
        wait_until(lambda: (tmp_path / "begun").exists() and (tmp_path / "begun").read_text() == "x")
        ray.cancel(running)
        with pytest.raises(KeyError, match="converted"):
            ray.get(running, timeout=60)
        assert (tmp_path / "begun").read_text() == "x", "a cancelled task is not retried"

    def test_an_interrupt_that_a_destructor_swallows_comes_again(self, tmp_path) -> None:
        class Slow:
            def __del__(self):
                (tmp_path / "begun").touch()
                time.sleep(1000)

        @ray.remote
        def drop():
            Slow()
            threading.Event().wait()

        running = drop.remote()
        wait_until((tmp_path / "begun").exists)
        ray.cancel(running)
        with pytest.raises(TaskCancelledError):
            ray.get(running, timeout=60)

    @pytest.mark.parametrize("imports", [True, False])
    def test_a_worker_that_was_interrupted_while_it_imported_runs_nothing_more(self, tmp_path, imports) -> None:
        (tmp_path / "slow_one").mkdir()
        (tmp_path / "slow_one/__init__.py").write_text("from slow_one import part\n")
        (tmp_path / "slow_one/part.py").write_text("from waiting_there import wait\nwait()\n")
        (tmp_path / "waiting_there.py").write_text(
            "import pathlib, threading\n"
            "def wait():\n"
            "    pathlib.Path(__file__).with_name('begun').touch()\n"
            "    threading.Event().wait()\n"
        )

        # All CPUs: one worker runs both.
        @ray.remote(num_cpus=4)
        def load(folder, imports):
            sys.path.insert(0, str(folder))
            (folder / "pid").write_text(str(os.getpid()))
            if imports:
                import slow_one  # noqa: F401
            else:
                from waiting_there import wait

                wait()

        running = load.remote(tmp_path, imports)
        wait_until((tmp_path / "begun").exists)
        ray.cancel(running)
        with pytest.raises(TaskCancelledError):
            ray.get(running, timeout=60)
        interrupted = int((tmp_path / "pid").read_text())
        next_one = ray.get(ray.remote(num_cpus=4)(os.getpid).remote(), timeout=60)
        assert (next_one == interrupted) is not imports
        if imports:
            wait_until(lambda: not Path(f"/proc/{interrupted}").exists())

    def test_force_kills_the_worker_and_what_it_started(self, tmp_path) -> None:
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
        wait_until(lambda: pids.exists() and pids.read_text().endswith(" "))
        ray.cancel(running, force=True)
        with pytest.raises((TaskCancelledError, WorkerCrashedError)):
            ray.get(running, timeout=60)
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.read_text().split()))
        assert len(pids.read_text().split()) == 2, "a cancelled task is not retried"
        assert ray.get(echo.remote(2), timeout=20) == 2

    def test_force_on_what_has_not_begun(self, tmp_path) -> None:
        begun, end = tmp_path / "begun", tmp_path / "end"
        holder = touch_and_wait.options(num_cpus=4).remote(begun, end)
        wait_until(begun.exists)
        waiting = echo.remote(1)
        ray.cancel(waiting, force=True)
        with pytest.raises(TaskCancelledError):
            ray.get(waiting, timeout=60)
        end.touch()
        assert ray.get(holder, timeout=20) == "ended", "its worker was not touched"

    def test_what_depends_on_a_cancelled_task_is_cancelled(self, tmp_path) -> None:
        begun, ran = tmp_path / "begun", tmp_path / "ran"
        running = touch_and_wait.remote(begun, tmp_path / "never")
        dependent = touch.remote(ran, running)
        wait_until(begun.exists)
        ray.cancel(running)
        with pytest.raises(TaskCancelledError):
            ray.get(dependent, timeout=60)
        assert not ran.exists()

    def test_every_result_of_a_cancelled_task_is_the_error(self, tmp_path) -> None:
        begun = tmp_path / "begun"
        results = touch_and_wait.options(num_returns=3).remote(begun, tmp_path / "never")
        wait_until(begun.exists)
        ray.cancel(results[1])
        for result in results:
            with pytest.raises(TaskCancelledError):
                ray.get(result, timeout=60)

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

    def test_whoever_was_given_the_reference_can_cancel(self, tmp_path) -> None:
        @ray.remote
        def cancel(references, force):
            ray.cancel(references[0], force=force)

        for number, force in enumerate([False, True]):
            begun = tmp_path / f"begun{number}"
            running = touch_and_wait.options(max_retries=0).remote(begun, tmp_path / "never")
            wait_until(begun.exists)
            ray.get(cancel.remote([running], force), timeout=20)
            with pytest.raises(TaskCancelledError):
                ray.get(running, timeout=60)

    def test_a_user_s_own_keyboard_interrupt_is_a_cancelled_task(self) -> None:
        @ray.remote
        def interrupt():
            raise KeyboardInterrupt("mine")

        with pytest.raises(TaskCancelledError, match="mine"):
            ray.get(interrupt.remote(), timeout=60)

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
            ray.get(fail.remote("odd"), timeout=60)
        assert type(caught.value.cause).__name__ == "Odd"
        with pytest.raises(RayTaskError) as caught:
            ray.get(fail.remote("exit"), timeout=60)
        assert isinstance(caught.value.cause, GeneratorExit)
        with pytest.raises(RayTaskError) as caught:
            ray.get(fail_as_group.remote(), timeout=60)
        assert [type(one) for one in caught.value.cause.exceptions] == [KeyboardInterrupt, ValueError]
