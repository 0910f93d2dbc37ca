"""Processes that die, in every role: nothing is left behind, nothing hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from watching import processes_of, wait_until


class Driver:
    """A program of its own, with a mark that its whole process tree inherits."""

    def __init__(self, tmp_path: Path, body: str) -> None:
        self.mark = f"{tmp_path}-{os.getpid()}"
        program = tmp_path / "driver.py"
        program.write_text(textwrap.dedent(body))
        environment = {**os.environ, "OXIRAY_TEST_MARK": self.mark, "OXIRAY_TMPDIR": str(tmp_path)}
        self.process = subprocess.Popen(
            [sys.executable, str(program)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def line(self) -> str:
        """What the program printed next, without what `init()` logs."""
        assert self.process.stdout is not None
        return next((line.strip() for line in self.process.stdout if "\tINFO " not in line), "")

    def finish(self, timeout: float = 60.0) -> str:
        output, _ = self.process.communicate(timeout=timeout)
        return output

    def nothing_is_left(self) -> None:
        wait_until(lambda: not processes_of(f"OXIRAY_TEST_MARK={self.mark}"))


@pytest.fixture
def driver(tmp_path):
    made: list[Driver] = []

    def start(body: str) -> Driver:
        made.append(Driver(tmp_path, body))
        return made[-1]

    yield start
    for one in made:
        one.process.kill()
        one.process.wait()
        for pid in processes_of(f"OXIRAY_TEST_MARK={one.mark}"):
            os.kill(pid, signal.SIGKILL)


ACTORS = """
    import os, subprocess, sys, time, ray
    ray.init(num_cpus=2, num_gpus=2)

    @ray.remote(num_gpus=1)
    class Holder:
        def start(self):
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
            return os.getpid(), child.pid

    holders = [Holder.remote() for _ in range(2)]
    print(ray.get([holder.start.remote() for holder in holders]), flush=True)
"""


def test_sigkill_of_a_driver_with_gpu_actors_leaves_nothing(driver, tmp_path) -> None:
    program = driver(ACTORS + "    time.sleep(1000)\n")
    assert program.line().startswith("[(")
    assert len(processes_of(program.mark)) >= 6
    program.process.kill()
    program.process.wait()
    program.nothing_is_left()
    assert not list(tmp_path.glob("oxiray-*/*/socket"))


def test_a_driver_that_ends_leaves_nothing(driver, tmp_path) -> None:
    program = driver(ACTORS)
    program.finish()
    assert program.process.returncode == 0
    program.nothing_is_left()
    assert not list(tmp_path.glob("oxiray-*/*/socket"))


def test_sigkill_of_the_daemon_is_an_error_in_the_driver_and_leaves_nothing(driver) -> None:
    program = driver(
        """
        import os, signal, subprocess, sys, time, ray
        ray.init(num_cpus=2)

        @ray.remote
        class Actor:
            def child(self):
                return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True).pid

        actor = Actor.remote()
        ray.get(actor.child.remote())
        slow = ray.remote(lambda: time.sleep(1000)).remote()
        ray.wait([slow], timeout=0.3)
        daemon = int(open("/proc/self/task/%d/children" % os.getpid()).read().split()[0])
        os.kill(daemon, signal.SIGKILL)
        for make in (lambda: slow, actor.child.remote, ray.remote(lambda: 1).remote):
            try:
                ray.get(make(), timeout=20)
            except ray.exceptions.LocalRayletDiedError as error:
                print("told:", type(error).__name__)
        named = lambda **options: Actor.options(name="n", **options).remote()
        for ask in (named, lambda: named(get_if_exists=True), ray.nodes, lambda: ray.get_actor("n")):
            try:
                ask()
            except ray.exceptions.LocalRayletDiedError as error:
                print("refused:", type(error).__name__)
        ray.shutdown()
        ray.init(num_cpus=1)
        print("again:", ray.get(ray.remote(lambda: 1).remote()))
        """
    )
    output = program.finish()
    assert output.count("told: LocalRayletDiedError") == 3, output
    assert output.count("refused: LocalRayletDiedError") == 4, output
    assert "again: 1" in output
    program.nothing_is_left()


def test_sigkill_of_the_template_does_not_end_the_cluster(driver) -> None:
    program = driver(
        """
        import os, signal, ray
        ray.init(num_cpus=2, num_gpus=1)

        @ray.remote(num_gpus=1, max_retries=0)
        def gpu():
            return os.getppid(), ray.get_gpu_ids()

        template, ids = ray.get(gpu.remote())
        os.kill(template, signal.SIGKILL)
        print("after:", ray.get(gpu.options(max_retries=3).remote(), timeout=30)[1])
        """
    )
    output = program.finish()
    assert "after: [0]" in output, output
    program.nothing_is_left()


def test_devices_come_back_after_workers_are_killed(driver) -> None:
    program = driver(
        """
        import os, signal, time, ray
        ray.init(num_cpus=4, num_gpus=4)

        @ray.remote(num_gpus=1, max_retries=0)
        def doomed():
            os.kill(os.getpid(), signal.SIGKILL)

        for reference in [doomed.remote() for _ in range(20)]:
            try:
                ray.get(reference, timeout=30)
            except ray.exceptions.WorkerCrashedError:
                pass
        until = time.monotonic() + 20
        while ray.available_resources().get("GPU") != 4.0:
            assert time.monotonic() < until, ray.available_resources()
            time.sleep(0.01)
        print("all back")
        """
    )
    assert "all back" in program.finish()


def test_output_of_workers_is_shown_with_their_names(driver) -> None:
    program = driver(
        """
        import sys, ray
        ray.init(num_cpus=2)

        @ray.remote
        def speak(n):
            print("hello", n)
            print("trouble", n, file=sys.stderr)

        @ray.remote
        class Talker:
            def talk(self):
                print("first\\nsecond")
                sys.stdout.write("no newline at the end")

        ray.get([speak.remote(1), Talker.remote().talk.remote()])
        ray.get(ray.remote(lambda: print("unnamed")).options(name="named").remote())
        """
    )
    output = program.finish()
    for line in ("(speak pid=", "hello 1", "trouble 1", "(Talker pid=", "second", "no newline at the end", "(named pid="):
        assert line in output, output


def test_a_flood_of_output_does_not_stop_the_work(driver) -> None:
    program = driver(
        """
        import sys, ray
        ray.init(num_cpus=1)

        @ray.remote
        def flood():
            for _ in range(2000):
                print("x" * 1000)
            return "flooded"

        # In one piece: print() writes its arguments one by one, and output of workers may come between.
        sys.stdout.write(f"result {ray.get(flood.remote(), timeout=60)}\\n")
        """
    )
    assert "result flooded" in program.finish()


@pytest.mark.parametrize("ending", ["ray.shutdown()", "pass"])
def test_a_driver_with_tasks_under_way_ends_at_once(driver, ending) -> None:
    program = driver(
        f"""
        import time, ray
        ray.init(num_cpus=2)

        @ray.remote
        def slow():
            time.sleep(1000)

        references = [slow.remote() for _ in range(50)]
        ray.wait(references, timeout=0.3)
        began = time.monotonic()
        {ending}
        print("ended", time.monotonic() - began < 30)
        """
    )
    assert "ended True" in program.finish(60)
    program.nothing_is_left()


def test_init_in_a_deleted_directory_works(driver) -> None:
    program = driver(
        """
        import os, tempfile, ray
        gone = tempfile.mkdtemp()
        os.chdir(gone)
        os.rmdir(gone)
        ray.init(num_cpus=1)
        print("result", ray.get(ray.remote(lambda: 7).remote(), timeout=20))
        """
    )
    assert "result 7" in program.finish(30)


def test_an_interrupt_ends_a_wait(driver) -> None:
    program = driver(
        """
        import signal, time, ray
        # A shell in the background has its children ignore this signal.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        ray.init(num_cpus=1)
        reference = ray.remote(lambda: time.sleep(1000)).remote()
        try:
            print("waiting", flush=True)
            ray.get(reference)
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert program.line() == "waiting"
    time.sleep(0.5)
    program.process.send_signal(signal.SIGINT)
    assert "interrupted" in program.finish(30)
    program.nothing_is_left()


def test_a_fork_of_the_drivers_own_is_harmless(driver) -> None:
    program = driver(
        """
        import os, ray
        ray.init(num_cpus=1)
        reference = ray.put("kept")
        pid = os.fork()
        if pid == 0:
            assert not ray.is_initialized()
            del reference
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        print(ray.get(reference), ray.get(ray.remote(lambda: "works").remote()))
        """
    )
    assert "kept works" in program.finish()
    program.nothing_is_left()


def test_a_wait_for_resources_is_explained_once(driver) -> None:
    program = driver(
        """
        import time, ray
        ray.init(num_cpus=2, num_gpus=1)

        @ray.remote(num_gpus=1)
        class Holder:
            def ping(self):
                return 1

        holder = Holder.remote()
        ray.get(holder.ping.remote())

        @ray.remote(num_gpus=1)
        def waits():
            return 2

        reference = waits.remote()
        ray.wait([reference], timeout=20)
        ray.kill(holder)
        print("then", ray.get(reference, timeout=20))
        """
    )
    output = program.finish()
    assert "then 2" in output
    notices = [line for line in output.splitlines() if line.startswith("(oxiray)")]
    assert len(notices) == 1 and "waits" in notices[0] and "GPU" in notices[0] and "Holder" in notices[0], output
