"""Actors whose process dies: made anew as often as they may be, and what becomes of calls meanwhile."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayActorError
from watching import alive, stop, wait_until

pytestmark = pytest.mark.usefixtures("cluster")


def there_again(actor: Any, method: str, *arguments: object) -> Any:
    """What a call returns once the actor is there again; a busy machine may take longer for that than a call waits."""
    while True:
        try:
            return ray.get(getattr(actor, method).remote(*arguments), timeout=60)
        except ActorUnavailableError as error:
            if "not there again" not in str(error):
                raise


class Plain:
    """Notes in a file what ran, since its own memory goes with its process."""

    def __init__(self, log: Path, start: object = 0) -> None:
        self.log, self.start, self.calls = log, start, 0
        self.note("init")

    def note(self, what: str) -> None:
        with self.log.open("a") as log:
            log.write(f"{what}\n")

    def pid(self) -> int:
        return os.getpid()

    def count(self) -> int:
        self.calls += 1
        return self.calls

    def seen(self) -> tuple[object, bool]:
        return self.start, ray.get_runtime_context().was_current_actor_reconstructed

    def step(self, number: int) -> int:
        self.note(f"step {number}")
        return number

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def die_once(self, marker: Path, number: int) -> int:
        self.note(f"step {number}")
        if not marker.exists():
            marker.touch()
            self.die()
        return number

    def wait_for(self, gate: Path) -> str:
        self.note("waiting")
        while not gate.exists():
            time.sleep(0.005)
        return "done"

    def leave(self) -> None:
        ray.actor.exit_actor()

    def quit(self) -> None:
        sys.exit(3)


Actor = ray.remote(Plain)


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def test_without_restarts_a_crash_is_the_end(tmp_path) -> None:
    actor = Actor.remote(tmp_path / "log")
    with pytest.raises(ActorDiedError, match="SIGKILL") as caught:
        ray.get(actor.die.remote(), timeout=20)
    assert caught.value.actor_id == actor._actor_id.hex()
    assert lines(tmp_path / "log") == ["init"]


def test_a_death_says_which_actor_it_was_and_where() -> None:
    named = Actor.options(name="to die", namespace="of deaths").remote(Path(os.devnull))
    pid = ray.get(named.pid.remote())
    for _ in range(2):
        with pytest.raises(ActorDiedError) as caught:
            ray.get(named.die.remote(), timeout=20)
        error, node = caught.value, ray.nodes()[0]
        assert (error.class_name, error.name, error.namespace, error.pid) == ("Plain", "to die", "of deaths", pid)
        assert (error.node_id, error.node_ip_address) == (node["NodeID"], node["NodeManagerAddress"])
        assert (error.actor_id, error.never_started) == (named._actor_id.hex(), False)
        said = ("class_name: Plain", f"pid: {pid}", "name: to die", "namespace: of deaths", node["NodeID"])
        assert all(one in str(error) for one in said), error


def test_the_death_of_an_actor_that_never_ran_says_so() -> None:
    holder = Actor.options(resources={"token": 2}).remote(Path(os.devnull))
    ray.get(holder.pid.remote())
    waits = Actor.options(resources={"token": 2}).remote(Path(os.devnull))
    ray.kill(waits)
    with pytest.raises(ActorDiedError, match="never ran") as caught:
        ray.get(waits.pid.remote(), timeout=20)
    assert caught.value.never_started and (caught.value.class_name, caught.value.pid) == ("Plain", 0)
    ray.kill(holder)


def test_a_restart_runs_the_constructor_again_with_its_arguments(tmp_path) -> None:
    large = list(range(100_000))
    actor = Actor.options(max_restarts=2).remote(tmp_path / "log", ray.put(large))
    assert ray.get(actor.count.remote()) == 1
    assert ray.get(actor.seen.remote()) == (large, False)
    for restarts in (1, 2):
        pid = ray.get(actor.pid.remote())
        with pytest.raises(ActorUnavailableError, match="may or may not") as caught:
            ray.get(actor.die.remote(), timeout=20)
        assert caught.value.actor_id == actor._actor_id.hex()
        assert there_again(actor, "count") == 1, "the state went with the process"
        assert ray.get(actor.seen.remote()) == (large, True)
        assert ray.get(actor.pid.remote()) != pid
        assert lines(tmp_path / "log") == ["init"] * (restarts + 1)
    with pytest.raises(ActorDiedError, match="restarted 2 times"):
        ray.get(actor.die.remote(), timeout=20)
    with pytest.raises(ActorDiedError):
        ray.get(actor.count.remote(), timeout=20)


def test_calls_made_while_an_actor_restarts_wait_for_it(tmp_path) -> None:
    actor = Actor.options(max_restarts=-1).remote(tmp_path / "log")
    pid = ray.get(actor.pid.remote())
    os.kill(pid, signal.SIGKILL)
    answers = []
    for number in range(20):
        try:
            answers.append(there_again(actor, "step", number))
        except ActorUnavailableError:
            answers.append(None)
    assert answers[1:] == list(range(1, 20)), "only a call that was under way may be lost"


def test_calls_with_retries_are_sent_again_in_order(tmp_path) -> None:
    actor = Actor.options(max_restarts=1, max_task_retries=-1).remote(tmp_path / "log")
    ray.get(actor.count.remote())
    calls = [actor.step.remote(0), actor.die_once.remote(tmp_path / "marker", 1)]
    calls += [actor.step.remote(number) for number in range(2, 40)]
    assert ray.get(calls, timeout=30) == list(range(40))
    steps = [int(line.split()[1]) for line in lines(tmp_path / "log") if line.startswith("step")]
    assert steps in ([0, 1, *range(1, 40)], [0, 1, 0, *range(1, 40)]), "the failed call comes before later ones"


def test_retries_are_counted(tmp_path) -> None:
    for attempt in range(20):
        log = tmp_path / f"log-{attempt}"
        actor = Actor.options(max_restarts=-1, max_task_retries=2).remote(log)
        with pytest.raises(ActorUnavailableError):
            ray.get(actor.die.remote(), timeout=30)
        assert there_again(actor, "count") == 1
        # A wait of 2 s for an actor that restarts uses a retry up as well: where a busy machine made it wait, once more.
        if len(lines(log)) >= 4:
            break
    assert lines(log) == ["init"] * 4


def test_infinite_retries_end_with_the_actor(tmp_path) -> None:
    actor = Actor.options(max_restarts=2, max_task_retries=-1).remote(tmp_path / "log")
    with pytest.raises(ActorDiedError):
        ray.get(actor.die.remote(), timeout=30)
    assert lines(tmp_path / "log") == ["init"] * 3


@pytest.mark.parametrize("how", ["kill", "leave", "__ray_terminate__", "constructor"])
def test_ends_that_are_meant_do_not_restart(tmp_path, how) -> None:
    actor = Actor.options(max_restarts=-1, max_task_retries=-1).remote(tmp_path / "log")
    ray.get(actor.count.remote())
    if how == "constructor":

        @ray.remote(max_restarts=-1)
        class Broken:
            def __init__(self, log: Path) -> None:
                with log.open("a") as file:
                    file.write("init\n")
                raise ValueError("broken")

            def count(self) -> None: ...

        (tmp_path / "log").unlink()
        actor = Broken.remote(tmp_path / "log")
    elif how == "kill":
        ray.kill(actor)
    else:
        getattr(actor, how).remote()
    with pytest.raises(ActorDiedError):
        ray.get(actor.count.remote(), timeout=20)
    assert lines(tmp_path / "log") == ["init"]


def test_sys_exit_is_a_crash(tmp_path) -> None:
    actor = Actor.options(max_restarts=1).remote(tmp_path / "log")
    with pytest.raises(ActorUnavailableError, match="sys.exit"):
        ray.get(actor.quit.remote(), timeout=20)
    assert there_again(actor, "count") == 1
    with pytest.raises(ActorDiedError, match="sys.exit"):
        ray.get(actor.quit.remote(), timeout=20)


def test_kill_may_leave_the_restarts(tmp_path) -> None:
    actor = Actor.options(max_restarts=1).remote(tmp_path / "log")
    pid = ray.get(actor.pid.remote())
    waiting = actor.wait_for.remote(tmp_path / "never")
    wait_until(lambda: "waiting" in lines(tmp_path / "log"))
    ray.kill(actor, no_restart=False)
    with pytest.raises(ActorUnavailableError, match="no_restart=False"):
        ray.get(waiting, timeout=20)
    assert there_again(actor, "pid") != pid
    assert not alive(pid), "one process at a time"
    ray.kill(actor, no_restart=False)
    with pytest.raises(ActorDiedError, match="ray.kill"):
        ray.get(actor.count.remote(), timeout=20)


def test_a_call_after_kill_goes_to_the_next_process(tmp_path) -> None:
    actor = Actor.options(max_restarts=-1).remote(tmp_path / "log")
    for _ in range(5):
        assert there_again(actor, "count") == 1
        ray.kill(actor, no_restart=False)


def test_a_restart_takes_its_resources_anew(tmp_path) -> None:
    holder = Actor.options(max_restarts=1, resources={"token": 2}, num_cpus=0).remote(tmp_path / "log")
    pid = ray.get(holder.pid.remote())
    assert ray.available_resources().get("token", 0) == 0
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: lines(tmp_path / "log") == ["init"] * 2)
    assert there_again(holder, "count") == 1
    assert ray.available_resources().get("token", 0) == 0
    ray.kill(holder)
    wait_until(lambda: ray.available_resources().get("token") == 2)


def test_a_crash_in_the_constructor_uses_restarts_up(tmp_path) -> None:
    @ray.remote(max_restarts=2)
    class Fragile:
        def __init__(self, log: Path) -> None:
            with log.open("a") as file:
                file.write("init\n")
            os.kill(os.getpid(), signal.SIGKILL)

        def ping(self) -> None: ...

    with pytest.raises(ActorDiedError, match="SIGKILL"):
        # A call without retries waits no longer than 2 s.
        ray.get(Fragile.remote(tmp_path / "log").ping.options(max_task_retries=-1).remote(), timeout=30)
    assert lines(tmp_path / "log") == ["init"] * 3


def test_names_and_other_callers_survive_a_restart(tmp_path) -> None:
    actor = Actor.options(name="phoenix", max_restarts=1, max_task_retries=20).remote(tmp_path / "log")

    @ray.remote
    class Caller:
        def call(self, handle) -> int:
            self.handle = handle
            return ray.get(handle.count.remote())

        def call_again(self) -> int:
            return ray.get(self.handle.count.remote())

    caller = Caller.remote()
    assert ray.get(caller.call.remote(actor)) == 1
    os.kill(ray.get(actor.pid.remote()), signal.SIGKILL)
    assert ray.get(ray.get_actor("phoenix").step.remote(7), timeout=20) == 7
    assert ray.get(caller.call_again.remote(), timeout=20) == 1


def test_a_method_may_retry_its_exceptions(tmp_path) -> None:
    @ray.remote(max_task_retries=3)
    class Flaky:
        def __init__(self) -> None:
            self.attempts, self.order = 0, []

        @ray.method(retry_exceptions=[ValueError])
        def flaky(self, failures: int, kind: type[Exception], box: list[object]) -> int:
            self.attempts += 1
            self.order.append("flaky")
            if self.attempts <= failures:
                raise kind(f"attempt {self.attempts}")
            return ray.get(box[0]) + self.attempts

        def after(self) -> list[str]:
            return [*self.order, "after"]

    box = [ray.put(100)]
    actor = Flaky.remote()
    first, second = actor.flaky.remote(2, ValueError, box), actor.after.remote()
    assert ray.get(first, timeout=20) == 103
    assert ray.get(second, timeout=20) == ["flaky"] * 3 + ["after"], "a failed call is retried before later ones"
    with pytest.raises(ValueError, match="attempt 4"):
        ray.get(Flaky.remote().flaky.remote(9, ValueError, box), timeout=20)
    with pytest.raises(KeyError, match="attempt 1"):
        ray.get(Flaky.remote().flaky.remote(9, KeyError, box), timeout=20)
    with pytest.raises(ValueError, match="attempt 2"):
        ray.get(Flaky.remote().flaky.options(max_task_retries=1).remote(9, ValueError, box), timeout=20)
    with pytest.raises(KeyError, match="attempt 4"):
        ray.get(Flaky.remote().flaky.options(retry_exceptions=True).remote(9, KeyError, box), timeout=20)


def test_async_methods_retry_their_exceptions() -> None:
    @ray.remote(max_task_retries=-1)
    class Flaky:
        def __init__(self) -> None:
            self.attempts = 0

        async def flaky(self, number: int) -> int:
            self.attempts += 1
            if self.attempts < 5:
                raise OSError("not yet")
            return number

    call = Flaky.remote().flaky.options(retry_exceptions=True).remote(7)
    assert ray.get(call, timeout=20) == 7


def test_threaded_calls_are_retried_too(tmp_path) -> None:
    actor = Actor.options(max_restarts=1, max_task_retries=-1, max_concurrency=4).remote(tmp_path / "log")
    calls = [actor.step.remote(number) for number in range(10)] + [actor.die_once.remote(tmp_path / "marker", 10)]
    assert ray.get(calls, timeout=30) == list(range(11))


def test_a_death_that_is_heard_of_late_is_one(tmp_path) -> None:
    """Whoever reaps the process stands still meanwhile: no stream is made to a dead one, with which further calls would be lost."""
    actor = Actor.options(max_restarts=1).remote(tmp_path / "log")
    pid = ray.get(actor.pid.remote())
    reaper = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    stop(reaper)
    goes_on = threading.Timer(1.5, os.kill, (reaper, signal.SIGCONT))
    goes_on.start()
    with pytest.raises(RayActorError) as caught:
        ray.get(actor.die.remote(), timeout=60)
    assert "stream" not in str(caught.value)
    assert there_again(actor, "pid") != pid
    goes_on.join()


def test_a_broken_stream_is_replaced_while_the_process_lives(tmp_path) -> None:
    import socket

    def sockets() -> dict[str, int]:
        found = {}
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            try:
                found[os.readlink(f"/proc/self/fd/{descriptor}")] = descriptor
            except OSError:
                pass  # closed meanwhile
        return {name: descriptor for name, descriptor in found.items() if name.startswith("socket:")}

    before = sockets()
    actor = Actor.remote(tmp_path / "log")
    assert ray.get(actor.count.remote()) == 1
    (stream,) = [descriptor for name, descriptor in sockets().items() if name not in before]
    waiting = actor.wait_for.remote(tmp_path / "gate")
    duplicate = socket.socket(fileno=os.dup(stream))
    duplicate.shutdown(socket.SHUT_RDWR)
    duplicate.close()
    with pytest.raises(ActorUnavailableError, match="stream"):
        ray.get(waiting, timeout=20)
    (tmp_path / "gate").touch()
    assert ray.get(actor.count.remote(), timeout=20) == 2, "the process and its state are still there"


def test_errors_of_one_family() -> None:
    assert issubclass(ActorDiedError, RayActorError) and issubclass(ActorUnavailableError, RayActorError)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_generator_that_is_run_again_repeats_nothing(is_async) -> None:
    class Sync:
        runs = 0

        def count(self, to: int):
            self.runs += 1
            for number in range(to):
                if self.runs == 1 and number == 3:
                    raise OSError("once")
                yield number

    class Async(Sync):
        async def count(self, to: int):
            for number in Sync.count(self, to):
                yield number

    actor = ray.remote(max_task_retries=1)(Async if is_async else Sync).remote()
    items = actor.count.options(retry_exceptions=True).remote(6)
    assert [ray.get(item, timeout=20) for item in items] == list(range(6))


@ray.remote(max_restarts=-1, num_cpus=0)
class Gated:
    """Is there when its gate is open."""

    def __init__(self, gate: Path) -> None:
        while not gate.exists():
            time.sleep(0.005)

    def pid(self) -> int:
        return os.getpid()


def test_a_call_to_an_actor_that_restarts_for_long_fails_unless_it_may_wait(tmp_path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    actor = Gated.remote(gate)
    pid = ray.get(actor.pid.remote(), timeout=20)
    gate.unlink()
    os.kill(pid, signal.SIGKILL)
    waits = actor.pid.options(max_task_retries=-1).remote()
    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(ActorUnavailableError, match="The actor is restarting"):
            # The first may have been under way when the process died.
            while True:
                try:
                    ray.get(actor.pid.remote(), timeout=20)
                except ActorUnavailableError as error:
                    if "SIGKILL" not in str(error):
                        raise
        assert time.monotonic() - began < 10
    assert ray.wait([waits], timeout=0)[0] == []
    gate.touch()
    again = ray.get(waits, timeout=20)
    assert again != pid and ray.get(actor.pid.remote(), timeout=20) == again


def test_each_wait_for_an_actor_that_restarts_uses_a_retry_up(tmp_path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    actor = Gated.options(max_task_retries=1).remote(gate)
    pid = ray.get(actor.pid.remote(), timeout=20)
    gate.unlink()
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(ActorUnavailableError, match="The actor is restarting"):
        for _ in range(2):
            ray.get(actor.pid.remote(), timeout=20)
    assert time.monotonic() - began > 2
    gate.touch()
    wait_until(lambda: ray.get(actor.pid.options(max_task_retries=-1).remote(), timeout=20) != pid)
