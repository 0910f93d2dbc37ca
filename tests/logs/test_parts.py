"""Which lines are a task's: of each attempt, in storms of calls, of calls at once, wherever they ran."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
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


def test_calls_at_once_say_that_they_share_their_lines(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=1)

    @ray.remote
    class Together:
        def __init__(self) -> None:
            import asyncio

            self.all = asyncio.Event()
            self.count = 0

        async def speak(self, word: str) -> None:
            print("begins", word)
            self.count += 1
            if self.count == 2:
                self.all.set()
            await self.all.wait()
            print("ends", word)

    together = Together.remote()
    refs = [together.speak.remote(word) for word in ("one", "two")]
    ray.get(refs)
    for ref, word in zip(refs, ("one", "two"), strict=True):
        (row,) = json.loads(oxiray("task", task_of(ref), "--json").stdout)
        assert row["part"]["shared"]
        lines = log(task_id=task_of(ref)).splitlines()
        assert {f"begins {word}", f"ends {word}"} < set(lines), lines


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
