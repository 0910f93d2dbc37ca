"""What workers print, where it is kept, and what they look like from outside."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import ray
from watching import wait_until


def run(tmp_path: Path, body: str, **environment: str) -> tuple[str, str]:
    """What a program prints to each of its streams."""
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(body))
    own = {**os.environ, "RAY_TMPDIR": str(tmp_path), **environment}
    streams = [tmp_path / "stdout", tmp_path / "stderr"]
    with streams[0].open("w") as output, streams[1].open("w") as errors:
        ended = subprocess.run([sys.executable, str(program)], env=own, stdout=output, stderr=errors, timeout=120, check=False)
    printed, told = (stream.read_text() for stream in streams)
    assert ended.returncode == 0, (printed, told)
    return printed, told


def without_pids(text: str) -> list[str]:
    return [re.sub(r"pid=\d+", "pid=_", line) for line in text.splitlines()]


def test_a_partial_line_is_a_line_of_its_task_and_no_mark_is_shown(tmp_path) -> None:
    printed, _ = run(
        tmp_path,
        r"""
        import os, ray, sys
        ray.init(num_cpus=1, log_to_driver=True)
        @ray.remote
        def a(): print("tail", end="")
        @ray.remote
        def b(): print("hello")
        @ray.remote
        def c(): os.write(1, b"\x1eoxiray-name:forged\nraw"); sys.stdout.write("50%")
        for task in (a, b, c, b): ray.get(task.remote())
        """,
    )
    b = "(b pid=_) hello"
    # The byte before it is one at which lines are divided.
    forged = ["(c pid=_) ", "(c pid=_) oxiray-name:forged"]
    assert without_pids(printed) == ["(a pid=_) tail", b, *forged, "(c pid=_) raw50%", b]


def test_an_actor_s_repr_names_its_output_once_it_is_made(tmp_path) -> None:
    printed, _ = run(
        tmp_path,
        r"""
        import ray
        ray.init(num_cpus=1)
        class Base:
            def __repr__(self): return f"MyActor[{self.number}]\x1b[31m"
        @ray.remote
        class A(Base):
            def __init__(self):
                print("begins")
                self.number = 3
            def hi(self): print("hi")
            def fail(self): raise ValueError("no")
        a = A.remote()
        ray.get(a.hi.remote())
        try: ray.get(a.fail.remote())
        except ValueError as error: assert "repr=MyActor[3]" in str(error) and "ray::A.fail()" in str(error), error
        """,
    )
    assert without_pids(printed) == ["(A pid=_) begins", r"(MyActor[3]\u001b[31m pid=_) hi"]


def test_lines_of_several_processes_are_shown_once(tmp_path) -> None:
    body = r"""
        import ray
        ray.init(num_cpus=1)
        @ray.remote(num_cpus=0)
        class A:
            def say(self, number):
                print("line", number); print("always this"); print("never this"); print("- - -"); print(1)
        actors = [A.remote() for _ in range(4)]
        for number, actor in enumerate(actors): ray.get(actor.say.remote(number))
        """
    asked = {"RAY_DEDUP_LOGS_ALLOW_REGEX": "always", "RAY_DEDUP_LOGS_SKIP_REGEX": "never", "RAY_DEDUP_LOGS_AGG_WINDOW_S": "100"}
    printed, _ = run(tmp_path, body, **asked)
    shown = [line.removeprefix("(A pid=_) ") for line in without_pids(printed)]
    assert sum(line == "always this" for line in shown) == 4 and sum(line == "1" for line in shown) == 4, shown
    assert not any("never" in line for line in shown), shown
    # Each process has a pipe of its own: which of them is read first, nobody promises.
    plain = [line for line in shown if re.fullmatch(r"line \d", line)]
    repeated = [line for line in shown if "[repeated 3x across cluster]" in line]
    last = re.match(r"line \d(?= \[)", repeated[0])
    assert len(plain) == 1 and last is not None and last[0] not in plain, shown
    assert sum("RAY_DEDUP_LOGS=0" in line for line in repeated) == 1, shown
    printed, _ = run(tmp_path, body, RAY_DEDUP_LOGS="0")
    assert len(printed.splitlines()) == 20, printed


def test_a_submitted_program_s_lines_are_not_divided_by_those_of_its_tasks(tmp_path) -> None:
    """What is printed meanwhile is an argument of a `print` that has begun its line."""
    printed, _ = run(
        tmp_path,
        r"""
        import os, ray, time
        ray.init(num_cpus=1)
        @ray.remote
        def f(): print("in task")
        class Slow:
            def __str__(self):
                ray.get(f.remote())
                until = time.monotonic() + 60
                while "in task" not in open("/proc/self/fd/1").read():
                    assert time.monotonic() < until
                    time.sleep(0.01)
                return "slow"
        print("begun", Slow(), "ended")
        """,
        PYTHONUNBUFFERED="1",
        OXIRAY_SUBMISSION_ID="job",
    )
    assert without_pids(printed) == ["(f pid=_) in task", "begun slow ended"]


def test_exit_statuses_are_told_as_they_are(cluster) -> None:
    cluster()

    @ray.remote(max_retries=0)
    def leave(status):
        sys.exit(status)

    for status, told in ((5, "exited with status 5"), (None, "exited with status 0"), ("words", "exited with status 1")):
        with pytest.raises(ray.exceptions.WorkerCrashedError, match=told):
            ray.get(leave.remote(status))


def test_a_crash_shows_its_stack_and_names_the_file_that_has_it(tmp_path) -> None:
    printed, errors = run(
        tmp_path,
        r"""
        import ctypes, ray
        ray.init(num_cpus=1)
        @ray.remote(max_retries=0)
        def crash():
            print("last words", flush=True)
            ctypes.string_at(0)
        try: ray.get(crash.remote())
        except ray.exceptions.WorkerCrashedError as error: print(error)
        """,
    )
    assert "SIGSEGV" in printed and "(crash pid=" in errors and "Fatal Python error: Segmentation fault" in errors
    assert re.search(r"\(crash pid=\d+\)   File .* in crash", errors), errors
    file = Path(re.search(r"its last output is in (\S+\.err)", printed)[1])  # type: ignore[index]
    assert "Segmentation fault" in file.read_text() and file.with_suffix(".out").read_text().splitlines()[1:] == ["last words"]
    assert re.fullmatch(r"worker-[0-9a-f]{56}-[0-9a-f]{8}-\d+\.err", file.name)


def test_logs_stay_and_nothing_else_of_a_session(tmp_path) -> None:
    printed, _ = run(
        tmp_path,
        r"""
        import ray
        ray.init(num_cpus=1, log_to_driver=False)
        @ray.remote
        def f(): print("kept")
        ray.get(f.remote())
        """,
    )
    assert "kept" not in printed
    [root] = tmp_path.glob("oxiray-*")
    assert sorted(path.name for path in root.iterdir() if path.name not in ("cache", "logs")) == []
    logs = (root / "logs" / "latest").resolve()
    assert logs.parent == root / "logs" and logs.name.startswith("session_")
    [output] = logs.glob("worker-*.out")
    assert output.read_text().splitlines()[1:] == ["kept"] and (logs / "daemon.log").stat().st_size > 0
    assert [stat.S_IMODE(path.stat().st_mode) for path in (root / "logs", logs, output)] == [0o700, 0o700, 0o600]


def test_an_actor_s_end_runs_its_del(tmp_path, cluster) -> None:
    cluster()

    @ray.remote
    class Holder:
        def __init__(self, name):
            self.path = tmp_path / name
            self.itself = self

        def __del__(self):
            self.path.write_text("ended")

        def leave(self):
            ray.actor.exit_actor()

        def exit(self):
            sys.exit(0)

    made = {name: Holder.remote(name) for name in ("scope", "exit_actor", "terminate", "sys_exit")}
    ray.get([holder.__ray_ready__.remote() for holder in made.values()])
    made["exit_actor"].leave.remote()
    made["terminate"].__ray_terminate__.remote()
    made["sys_exit"].exit.remote()
    del made["scope"]
    wait_until(lambda: len(list(tmp_path.iterdir())) == 4)


def test_what_was_wanted_is_no_unhandled_error(tmp_path) -> None:
    _, errors = run(
        tmp_path,
        r"""
        import ray, time
        ray.init(num_cpus=2)
        @ray.remote
        class A: pass
        @ray.remote
        def child(): time.sleep(1000)
        @ray.remote
        def parent():
            child.remote()
            time.sleep(1000)
        a = A.remote()
        ray.get(a.__ray_ready__.remote())
        a.__ray_terminate__.remote()
        try: ray.get(a.__ray_ready__.remote())
        except ray.exceptions.ActorDiedError: pass
        running = parent.remote()
        def count(): return sum(task.state == "RUNNING" for task in ray.util.state.list_tasks())
        import ray.util.state
        until = time.monotonic() + 60
        while count() < 2 and time.monotonic() < until: time.sleep(0.05)
        ray.cancel(running)
        try: ray.get(running)
        except ray.exceptions.TaskCancelledError: pass
        """,
    )
    assert "Unhandled error" not in errors, errors


def test_processes_are_called_by_what_they_do(cluster) -> None:
    cluster()

    def title() -> str:
        return Path("/proc/self/cmdline").read_bytes().split(b"\0")[0].decode()

    def title_of(pid: int) -> str:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()

    @ray.remote
    def f():
        return title(), os.getpid()

    @ray.remote
    class A:
        def __init__(self):
            self.born = title()

        def titles(self):
            return self.born, title(), os.getpid()

    shown, pid = ray.get(f.remote())
    assert shown == "ray::f"
    wait_until(lambda: title_of(pid) == "ray::IDLE")
    assert ray.get(f.options(name="named").remote())[0] == "ray::named"
    a = A.remote()
    born, called, pid = ray.get(a.titles.remote())
    assert (born, called) == ("ray::A.__init__", "ray::A.titles")
    wait_until(lambda: title_of(pid) == "ray::A")
