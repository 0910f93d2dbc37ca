"""How actors end: what is run before, and what is said after."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
import ray
from ray.exceptions import ActorDiedError
from watching import alive, wait_until

pytestmark = pytest.mark.usefixtures("cluster")


class Tidy:
    def __init__(self, log: Path, *, fails: bool = False) -> None:
        import atexit

        self.log, self.fails = log, fails
        if fails == "constructor":
            raise ValueError("no")
        atexit.register(self.note, "atexit")

    def note(self, what: str) -> None:
        with self.log.open("a") as log:
            log.write(f"{what}\n")

    def __ray_shutdown__(self) -> None:
        self.note("shutdown")
        if self.fails:
            raise ValueError("on purpose")

    def pid(self) -> int:
        return os.getpid()

    def leave(self) -> None:
        ray.actor.exit_actor()

    def slow(self) -> str:
        self.note("begun")
        time.sleep(0.3)
        self.note("slow")
        return "slow"


class AsyncTidy(Tidy):
    async def ping(self) -> None: ...


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize("cls", [Tidy, AsyncTidy])
@pytest.mark.parametrize("how", ["leave", "__ray_terminate__", "handle"])
def test_an_actor_tidies_up_when_it_is_meant_to_end(tmp_path, how, cls) -> None:
    log = tmp_path / "log"
    actor = ray.remote(cls).remote(log)
    pid = ray.get(actor.pid.remote())
    if how == "handle":
        del actor
    else:
        with pytest.raises(ActorDiedError):
            ray.get(getattr(actor, how).remote(), timeout=20)
    wait_until(lambda: not alive(pid))
    assert lines(log) == ["shutdown", "atexit"]


def test_a_failing_shutdown_does_not_keep_the_rest_from_running(tmp_path) -> None:
    actor = ray.remote(Tidy).remote(tmp_path / "log", fails=True)
    pid = ray.get(actor.pid.remote())
    del actor
    wait_until(lambda: not alive(pid))
    assert lines(tmp_path / "log") == ["shutdown", "atexit"]


@pytest.mark.parametrize("how", ["kill", "SIGKILL", "constructor"])
def test_nothing_is_tidied_up_by_force(tmp_path, how) -> None:
    log = tmp_path / "log"
    actor = ray.remote(Tidy).remote(log, fails=how)
    if how == "constructor":
        with pytest.raises(ActorDiedError, match="no"):
            ray.get(actor.pid.remote(), timeout=20)
    else:
        pid = ray.get(actor.pid.remote())
        ray.kill(actor) if how == "kill" else os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(pid))
    assert lines(log) == []


def test_calls_in_other_threads_finish_before_an_actor_leaves(tmp_path) -> None:
    log = tmp_path / "log"
    actor = ray.remote(max_concurrency=3)(Tidy).remote(log)
    slow = [actor.slow.remote(), actor.slow.remote()]
    wait_until(lambda: lines(log).count("begun") == 2)
    leaving = actor.leave.remote()
    assert ray.get(slow, timeout=20) == ["slow", "slow"]
    for late in (leaving, actor.pid.remote()):
        with pytest.raises(ActorDiedError, match="exit_actor"):
            ray.get(late, timeout=20)
    assert sorted(lines(log)[:4]) == ["begun", "begun", "slow", "slow"] and lines(log)[4:] == ["shutdown", "atexit"]


def test_coroutines_finish_before_an_async_actor_leaves(tmp_path) -> None:
    @ray.remote(max_concurrency=3)
    class Async:
        async def wait(self, begun: str, end: str) -> str:
            (tmp_path / begun).touch()
            while not (tmp_path / end).exists():
                await asyncio.sleep(0.005)
            return "went on"

        async def leave(self) -> None:
            ray.actor.exit_actor()

    actor = Async.remote()
    running = [actor.wait.remote("one", "end"), actor.wait.remote("two", "end")]
    wait_until(lambda: (tmp_path / "one").exists() and (tmp_path / "two").exists())
    holding = actor.wait.remote("three", "leave")
    wait_until((tmp_path / "three").exists)
    leaving, never = actor.leave.remote(), actor.wait.remote("never", "end")
    (tmp_path / "leave").touch()
    assert ray.get(holding, timeout=20) == "went on"
    with pytest.raises(ActorDiedError, match="exit_actor"):
        ray.get(leaving, timeout=20)
    late = actor.wait.remote("late", "end")
    (tmp_path / "end").touch()
    assert ray.get(running, timeout=20) == ["went on"] * 2
    for gone in (never, late):
        with pytest.raises(ActorDiedError, match="exit_actor"):
            ray.get(gone, timeout=20)
    assert not (tmp_path / "never").exists() and not (tmp_path / "late").exists()


def test_what_is_said_of_the_dead(tmp_path) -> None:
    killed = ray.remote(Tidy).remote(tmp_path / "log")
    ray.get(killed.pid.remote())
    ray.kill(killed)
    left = ray.remote(Tidy).remote(tmp_path / "log")
    ray.wait([left.leave.remote()], timeout=20)
    broken = ray.remote(Tidy).remote(tmp_path / "log", fails="constructor")
    impossible = ray.remote(resources={"token": 3})(Tidy).remote(tmp_path / "log")
    expected = [
        (killed, ActorDiedError, r"The actor is dead because it was killed by `ray.kill`\."),
        (left, ActorDiedError, r"The actor is dead because it called exit_actor\(\)\."),
        (broken, ActorDiedError, "creation task"),
        (impossible, ray.exceptions.ActorUnschedulableError, "token"),
    ]
    for actor, kind, text in expected:
        with pytest.raises(kind, match=text) as caught:
            ray.get(actor.pid.remote(), timeout=20)
        if kind is ActorDiedError:
            assert caught.value.actor_id == actor._actor_id.hex()
            assert caught.value.actor_init_failed == (actor is broken)
