"""Limits of single workers by control groups: `memory=`, and processes. They need a machine where groups can be made."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HEAD = """if True:
        import os, re, subprocess, sys, time
        from pathlib import Path
        import ray
        from ray.exceptions import OutOfMemoryError

        def start(**options):
            options = {"num_cpus": 2, "object_store_memory": 200 << 20, "_memory": 2 << 30, **options}
            address = ray.init(**options).address_info
            return Path(address["session_dir"])

        def log(session):
            logs = session / "logs"
            return (logs if logs.exists() else session.parent / "logs" / session.name).joinpath("daemon.log").read_text()
"""


def run(program: str, **environment: str) -> str:
    """What a program prints, without its first lines; it must end well."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + program],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def enforced() -> Iterator[None]:
    said = run(
        """
        print(re.findall(r"(?:memory=|processes) of workers: .*", log(start())))
        """
    )
    if "not enforced" in said:
        pytest.skip(said)
    yield


def test_a_task_that_takes_more_than_its_memory_is_told_both_while_another_works() -> None:
    output = run(
        """
        start()

        @ray.remote(memory=200 << 20)
        def greedy():
            return len(bytearray(b"x") * (600 << 20))

        @ray.remote(memory=200 << 20)
        def modest(number):
            taken = bytearray(b"x") * (150 << 20)
            return number * taken.count(b"x")

        modest_one = modest.remote(2)
        try:
            ray.get(greedy.remote())
        except OutOfMemoryError as error:
            text = str(error)
            assert "memory=209715200, which is 200 MiB" in text, text
            assert len(re.findall(r"[0-9.]+ MiB", text)) >= 3 and "Ask for more" in text, text
            assert "signal" not in text, text
            print("told")
        assert ray.get(modest_one) == 2 * (150 << 20)
        assert ray.get(ray.remote(lambda: len(bytearray(b"x") * (600 << 20))).remote()) == 600 << 20
        """
    )
    assert output.split()[-1] == "told", output


def test_what_a_task_writes_to_the_store_is_not_its_own_memory() -> None:
    output = run(
        """
        import numpy as np
        start(object_store_memory=800 << 20)

        @ray.remote(memory=150 << 20)
        def large():
            return np.ones(14 << 20)

        kept = [large.remote() for _ in range(4)]
        print(sum(int(ray.get(one).sum()) for one in kept) == 4 * (14 << 20))
        """
    )
    assert output.split()[-1] == "True", output


def test_an_actor_that_takes_more_than_its_memory_dies_with_the_reason() -> None:
    output = run(
        """
        start()

        @ray.remote(memory=100 << 20)
        class Actor:
            def take(self, mebibytes):
                return len(bytearray(b"x") * (mebibytes << 20))

        actor = Actor.remote()
        assert ray.get(actor.take.remote(80)) == 80 << 20
        try:
            ray.get(actor.take.remote(600))
        except ray.exceptions.RayActorError as error:
            assert "memory=104857600, which is 100 MiB" in str(error), error
            print("told")
        """
    )
    assert output.split()[-1] == "told", output


def test_a_fork_bomb_ends_with_its_task_and_honest_tasks_are_right() -> None:
    output = run(
        """
        session = start()
        marker = f"bomb-of-{os.getpid()}"

        @ray.remote
        def bomb(marker, gate):
            failed = 0
            code = "import time; time.sleep(1e6)"
            while failed < 3:
                try:
                    subprocess.Popen([sys.executable, "-c", code, marker], start_new_session=True)
                except OSError:
                    failed += 1
            while not os.path.exists(gate):
                time.sleep(0.01)
            return os.getpid()

        @ray.remote
        def honest(number):
            return number + int(subprocess.check_output(["echo", "1"]))

        def living(marker):
            found = []
            for entry in Path("/proc").iterdir():
                try:
                    if entry.name.isdigit() and marker.encode() in (entry / "cmdline").read_bytes().split(b"\\0"):
                        found.append(int(entry.name))
                except OSError:
                    pass
            return [pid for pid in found if pid != os.getpid()]

        gate = session / "gate"
        bombed = bomb.remote(marker, str(gate))
        results = ray.get([honest.remote(number) for number in range(20)])
        assert results == [number + 1 for number in range(20)], results
        until = time.monotonic() + 60
        while "has met its limit of 48 processes and threads" not in log(session):
            assert time.monotonic() < until, log(session)
            time.sleep(0.05)
        # The next task would find the worker as the bomb left it, did the bomb end before the daemon has heard of that.
        gate.touch()
        pid = ray.get(bombed)
        while living(marker):
            assert time.monotonic() < until, living(marker)
            time.sleep(0.05)
        assert ray.get(ray.remote(lambda: os.getpid()).remote()) != pid
        print("over")
        """,
        OXIRAY_WORKER_PIDS_MAX="48",
    )
    assert output.split()[-1] == "over", output


def test_groups_go_with_their_daemon_and_those_of_a_killed_one_with_the_next() -> None:
    output = run(
        """
        def groups(session):
            return [Path(line) for line in (session / "control_groups").read_text().split()]

        session = start()
        ray.get(ray.remote(lambda: os.getpid()).options(memory=100 << 20).remote())
        there = groups(session)
        assert there and all(group.is_dir() for group in there), there
        ray.shutdown()
        until = time.monotonic() + 60
        while any(group.exists() for group in there):
            assert time.monotonic() < until, there
            time.sleep(0.05)

        session = start()
        ray.get(ray.remote(lambda: os.getpid()).remote())
        there = groups(session)
        daemon = int(there[0].name.split("-")[1])
        os.kill(daemon, 9)
        ray.shutdown()
        until = time.monotonic() + 60
        while any(group.exists() for group in there):
            assert time.monotonic() < until, there
            start()
            ray.shutdown()
        print("removed")
        """
    )
    assert output.split()[-1] == "removed", output
