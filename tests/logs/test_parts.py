"""Which lines are a task's: of each attempt, in storms of calls, of calls at once, wherever they ran."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
from oxiray import _core
from oxiray._cli import native_binary
from ray.util.state import get_log, list_logs
from ray.util.state.exception import RayStateApiException
from watching import wait_until


def log(**named: Any) -> str:
    return "".join(get_log(**named))


def oxiray(*words: str) -> subprocess.CompletedProcess[str]:
    address = f"--address={_core.context()['address']}"
    return subprocess.run([str(native_binary()), "logs", address, *words], capture_output=True, text=True, check=False)


def task_of(reference: Any) -> str:
    return str(reference.task_id().hex())


def test_each_task_has_its_lines_and_no_other_s(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=1)

    @ray.remote
    def speak(word: str) -> None:
        print(word)
        os.write(1, b"raw " + word.encode() + b"\n")
        subprocess.run(["echo", "child", word], check=True)
        os.write(2, b"error " + word.encode() + b"\n")
        print(f"half of {word}", end="")

    @ray.remote
    def keep_silent() -> None:
        pass

    refs = [speak.remote(word) for word in ("one", "two", "three")]
    silent = keep_silent.remote()
    ray.get([*refs, silent])
    for ref, word in zip(refs, ("one", "two", "three"), strict=True):
        assert log(task_id=task_of(ref)) == f"{word}\nraw {word}\nchild {word}\nhalf of {word}\n"
        assert log(task_id=task_of(ref), suffix="err") == f"error {word}\n"
    assert log(task_id=task_of(refs[0]), tail=1) == "half of one\n"
    assert log(task_id=task_of(silent)) == ""
    with pytest.raises(RayStateApiException, match="no task"):
        log(task_id="07" * 24)


def test_each_attempt_has_its_lines(tmp_path: Path, cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=1)

    @ray.remote(max_retries=2)
    def crash(marks: str) -> None:
        attempt = len(os.listdir(marks))
        Path(marks, str(attempt)).touch()
        print(f"attempt {attempt}")
        if attempt < 2:
            os._exit(1)

    @ray.remote(max_retries=1, retry_exceptions=True)
    def fail(mark: str) -> None:
        is_first = not os.path.exists(mark)
        Path(mark).touch()
        print("first" if is_first else "second")
        if is_first:
            raise ValueError

    marks = tmp_path / "marks"
    marks.mkdir()
    crashes, fails = crash.remote(str(marks)), fail.remote(str(tmp_path / "mark"))
    ray.get([crashes, fails])
    assert [log(task_id=task_of(crashes), attempt_number=number) for number in range(3)] == [
        f"attempt {number}\n" for number in range(3)
    ]
    assert [log(task_id=task_of(fails), attempt_number=number) for number in range(2)] == ["first\n", "second\n"]
    everything = oxiray("task", task_of(crashes)).stdout
    assert re.findall(r"==> .*, attempt (\d) <==\nattempt (\d)", everything) == [(str(one), str(one)) for one in range(3)]


def test_in_a_storm_of_calls_each_that_prints_is_found(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=1)

    @ray.remote
    def speak(number: int) -> None:
        if number % 3 == 0:
            print("line", number)

    @ray.remote
    class Speaker:
        def speak(self, number: int) -> None:
            print("call", number)

    speaker = Speaker.options(num_cpus=0).remote()
    refs = [speak.remote(number) for number in range(1000)]
    calls = [speaker.speak.remote(number) for number in range(500)]
    ray.get([*refs, *calls])
    for number in (0, 3, 300, 600, 999):
        assert log(task_id=task_of(refs[number])) == f"line {number}\n"
    for number in (0, 100, 499):
        assert log(task_id=task_of(calls[number])) == f"call {number}\n"
    assert log(task_id=task_of(refs[301])) == ""


def test_in_a_storm_of_prints_every_line_is_kept(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=2)
    count = 50_000

    @ray.remote
    def storm(name: str) -> None:
        for number in range(count):
            print(f"{name} {number}")

    @ray.remote
    def flood() -> None:
        for number in range(count):
            os.write(1, b"%d\n" % number)

    refs = [storm.remote("one"), flood.remote()]
    ray.get(refs)
    printed = log(task_id=task_of(refs[0]), tail=-1).splitlines()
    assert (len(printed), printed == [f"one {number}" for number in range(count)]) == (count, True)
    assert log(task_id=task_of(refs[1]), tail=-1) == "".join(f"{number}\n" for number in range(count))


def test_calls_at_once_say_that_they_share_their_lines(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=1)

    @ray.remote
    class Together:
        def __init__(self) -> None:
            import asyncio

            self.begun = asyncio.Event()
            self.ended = asyncio.Event()

        async def first(self) -> None:
            print("begins first")
            await self.begun.wait()
            print("ends first")
            self.ended.set()

        async def second(self) -> None:
            print("begins second")
            self.begun.set()
            await self.ended.wait()
            print("ends second")

    together = Together.remote()
    refs = [together.first.remote(), together.second.remote()]
    ray.get(refs)
    # Each of the two has a line of the other between its own.
    for ref, word, of_other in zip(refs, ("first", "second"), ("begins second", "ends first"), strict=True):
        (row,) = json.loads(oxiray("task", task_of(ref), "--json").stdout)
        assert row["part"]["shared"]
        lines = log(task_id=task_of(ref)).splitlines()
        assert {f"begins {word}", of_other, f"ends {word}"} <= set(lines), lines


def test_an_actor_s_lines_are_followed_until_it_ends(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=1)

    @ray.remote
    class Speaker:
        def speak(self, word: str) -> int:
            print(word, flush=True)
            return os.getpid()

    speaker = Speaker.remote()
    pid = ray.get(speaker.speak.remote("before"))
    actor = speaker._actor_id.hex()
    heard: list[str] = []
    follower = threading.Thread(target=lambda: heard.extend(get_log(actor_id=actor, follow=True)))
    follower.start()
    wait_until(lambda: "before" in "".join(heard))
    for word in ("one", "two", "three"):
        ray.get(speaker.speak.remote(word))
        wait_until(lambda word=word: word in "".join(heard))  # type: ignore[misc]
    os.kill(pid, signal.SIGKILL)
    follower.join(60)
    assert not follower.is_alive(), "nothing more will come"
    assert "".join(heard).endswith("before\none\ntwo\nthree\n")
    assert log(actor_id=actor) == "".join(heard), "it is read after its end as well"
    assert log(pid=pid, tail=1) == "three\n"


def test_those_of_a_job_and_since_when(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=1)

    @ray.remote
    def speak() -> None:
        print("of this job")

    ray.get(speak.remote())
    job = ray.get_runtime_context().get_job_id()
    assert "of this job" in oxiray("job", job).stdout
    assert "of this job" in oxiray("job", job, "--since", "10m").stdout
    assert oxiray("job", "77777777").returncode == 1
    files = list_logs(glob_filter=f"*{job}*.out")["worker_out"]
    assert all("of this job" in log(filename=name) for name in files) and files


def test_what_is_no_file_of_logs_is_not_read(tmp_path: Path, cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=1)
    (tmp_path / "secret").write_text("secret")
    logs = Path(_core.context()["session"]) / "logs"
    (logs / "link").symlink_to(tmp_path / "secret")
    for name in ("link", str(tmp_path / "secret"), os.path.relpath(tmp_path / "secret", logs.resolve()), "../daemon.log"):
        done = oxiray(name)
        assert (done.returncode, done.stdout) == (1, ""), done
    assert "joins" in log(filename="daemon.log")


def test_what_was_printed_before_somebody_asks_is_in_what_he_is_told(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=4)

    @ray.remote(num_cpus=0)
    class Speaker:
        def speak(self, word: str) -> int:
            print(word, flush=True)
            return os.getpid()

        def chatter(self, seconds: float) -> None:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                print("la " * 100, flush=True)

    speaker, *others = [Speaker.remote() for _ in range(3)]
    pid = ray.get(speaker.speak.remote("begins"))
    noise = [other.chatter.remote(3) for other in others]
    words = [f"word {number}" for number in range(60)]
    for word in words:
        ray.get(speaker.speak.remote(word))
        assert log(pid=pid, tail=1) == f"{word}\n"
    ray.get(noise)


def test_few_may_follow_a_node_s_files(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=1)

    @ray.remote
    class Speaker:
        def speak(self) -> int:
            print("here", flush=True)
            return os.getpid()

    speaker = Speaker.remote()
    pid = ray.get(speaker.speak.remote())
    command = [str(native_binary()), "logs", f"--address={_core.context()['address']}", "--follow", "worker", str(pid)]
    pipe = subprocess.PIPE
    followers = [subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) for _ in range(66)]
    try:
        wait_until(lambda: sum(one.poll() is not None for one in followers) >= 2)
        ended = [one for one in followers if one.poll() is not None]
        told = [one.communicate() for one in ended]
        assert len(ended) == 2, told
        assert all("follow logs of that node already" in errors for _, errors in told), told
        ray.kill(speaker)
        wait_until(lambda: all(one.poll() is not None for one in followers))
    finally:
        for one in followers:
            one.kill()
            one.communicate()


class Follower:
    """`oxiray logs --follow`, whose output is read as it comes."""

    def __init__(self, *words: str) -> None:
        command = [str(native_binary()), "logs", f"--address={_core.context()['address']}", "--quiet", "--follow", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.removesuffix("\n"))

    def hears(self, line: str) -> None:
        wait_until(lambda: line in self.lines)

    def ends(self) -> list[str]:
        """All that was printed, once nothing more will be."""
        try:
            status = self.process.wait(60)
            self.reader.join(60)
            assert self.process.stderr is not None
            assert status == 0, self.process.stderr.read()
            return [line for line in self.lines if not line.startswith(":job_id:")]
        finally:
            self.process.kill()


def test_an_actor_that_has_printed_nothing_is_followed_through_its_restarts(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=1)

    @ray.remote(max_restarts=1, max_task_retries=0)
    class Speaker:
        def pid(self) -> int:
            return os.getpid()

        def speak(self, word: str) -> None:
            print(word, flush=True)

    speaker = Speaker.remote()
    first = ray.get(speaker.pid.remote())
    follower = Follower("actor", speaker._actor_id.hex())
    try:
        ray.get(speaker.speak.remote("of the first"))
        follower.hears("of the first")
        os.kill(first, signal.SIGKILL)

        def speaks_again() -> bool:
            try:
                ray.get(speaker.speak.remote("of the second"))
            except ray.exceptions.RayActorError:
                return False
            return True

        wait_until(speaks_again)
        follower.hears("of the second")
        assert follower.process.poll() is None, "the actor goes on"
        ray.kill(speaker)
        assert follower.ends() == ["of the first", "of the second"]
    finally:
        follower.process.kill()


def test_a_task_is_followed_to_its_end_and_no_further(tmp_path: Path, cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=1)
    gate = tmp_path / "gate"

    @ray.remote(max_retries=1, retry_exceptions=True)
    def twice(gate: Path) -> None:
        gate.with_suffix(".begun").touch()
        while not gate.exists():
            time.sleep(0.01)
        is_second = gate.with_suffix(".first").exists()
        print("the second attempt" if is_second else "the first attempt", flush=True)
        if not is_second:
            gate.with_suffix(".first").touch()
            raise ValueError("as it is the first")

    @ray.remote
    def other() -> None:
        print("of another task", flush=True)

    ref = twice.remote(gate)
    wait_until(gate.with_suffix(".begun").exists)
    both, first = Follower("task", task_of(ref)), Follower("task", task_of(ref), "--attempt=0")
    try:
        gate.touch()
        ray.get(ref)
        # It runs in the same process, which goes on.
        ray.get(other.remote())
        assert first.ends() == ["the first attempt"]
        assert both.ends() == ["the first attempt", "the second attempt"]
    finally:
        both.process.kill()
        first.process.kill()


def test_a_running_task_s_lines_are_followed_without_those_of_the_next(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=1)

    @ray.remote
    def speak(path: str, word: str) -> None:
        print(f"{word} begins", flush=True)
        while path and not Path(path).exists():
            time.sleep(0.01)
        print(f"{word} ends", flush=True)

    path = Path(_core.context()["session"]) / "gate"
    ref, after = speak.remote(str(path), "this"), speak.remote("", "that")
    follower = Follower("task", task_of(ref))
    try:
        follower.hears("this begins")
        path.touch()
        ray.get([ref, after])
        assert follower.ends() == ["this begins", "this ends"]
    finally:
        follower.process.kill()


def test_a_job_s_new_workers_are_followed_until_it_ends(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=2)
    text = """
import ray, sys
ray.init(address=sys.argv[1], log_to_driver=False)
@ray.remote
class Speaker:
    def speak(self, word): print(word, flush=True)
print(ray.get_runtime_context().get_job_id(), flush=True)
speakers = []
for word in sys.stdin:
    speakers.append(Speaker.options(num_cpus=0).remote())
    ray.get(speakers[-1].speak.remote(word.strip()))
    print("spoken", flush=True)
"""
    command = [sys.executable, "-c", text, _core.context()["address"]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdin is not None and driver.stdout is not None
        follower = Follower("job", driver.stdout.readline().strip())
        try:
            for word in ("one", "two", "three"):
                driver.stdin.write(f"{word}\n")
                driver.stdin.flush()
                assert driver.stdout.readline() == "spoken\n"
                follower.hears(word)
            driver.stdin.close()
            assert follower.ends() == ["one", "two", "three"]
        finally:
            follower.process.kill()
            driver.kill()


def test_who_printed_nothing_and_has_ended_is_not_followed(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=1)

    @ray.remote
    def quiet() -> None: ...

    ref = quiet.remote()
    ray.get(ref)
    done = oxiray("task", task_of(ref), "--follow")
    assert done.returncode == 0 and "nothing that task" in done.stderr, done
    done = oxiray("actor", "0" * 32, "--follow")
    assert done.returncode == 1 and "nothing is kept" in done.stderr, done


def test_lines_are_given_as_often_and_in_the_encoding_that_is_said(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=1)

    @ray.remote
    def speak() -> None:
        os.write(1, b"a\xff\xe4\n")

    ref = speak.remote()
    ray.get(ref)
    task = task_of(ref)
    assert log(task_id=task, errors="replace") == "a\ufffd\ufffd\n"
    assert log(task_id=task, encoding="latin-1") == "a\xff\xe4\n"
    assert b"".join(get_log(task_id=task, encoding=None)) == b"a\xff\xe4\n"
    with pytest.raises(UnicodeDecodeError):
        log(task_id=task)
    with pytest.raises(ValueError, match="follow is False"):
        log(task_id=task, _interval=1.0)
    assert log(task_id=task, follow=True, _interval=0.1, errors="ignore") == "a\n"
    assert oxiray("task", task, "--encoding=latin-1").stdout == "a\xff\xe4\n"
    assert oxiray("task", task, "--encoding=utf-8", "--encoding-errors=backslashreplace").stdout == "a\\xff\\xe4\n"
    strict = oxiray("task", task, "--encoding=utf-8")
    assert strict.returncode == 1 and "is not utf-8" in strict.stderr, strict
    unknown = oxiray("task", task, "--encoding=utf-16")
    assert unknown.returncode == 2 and "get_log(encoding=...)" in unknown.stderr, unknown
    assert oxiray("task", task, "--interval=1").returncode == 2
