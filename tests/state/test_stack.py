"""`oxiray stack`: where threads and asyncio tasks are, of processes that hold the interpreter, too."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from ray.util import state

from commands import run
from watching import stopped, wait_until

#: PR_SET_DUMPABLE.
_SET_DUMPABLE = 4


@ray.remote
class Sleeper:
    """Waits in a place that its stack names."""

    def pid(self) -> int:
        return os.getpid()

    def be_closed(self) -> int:
        assert ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0) == 0
        return os.getpid()

    def waits_here(self, marker: str) -> None:
        while not Path(marker).exists():
            time.sleep(0.01)

    def waits_in_native_code(self, marker: str) -> None:
        end = os.open(f"{marker}.end", os.O_RDWR)
        Path(marker).touch()
        # Called without giving the interpreter up, as an extension does that computes.
        while ctypes.PyDLL(None).read(end, ctypes.create_string_buffer(1), 1) != 1:
            pass

    def waits_in_a_thread(self, marker: str) -> None:
        thread = threading.Thread(target=self.waits_here, args=(marker,), name="beside")
        thread.start()
        thread.join()


@ray.remote
class Async:
    async def pid(self) -> int:
        return os.getpid()

    async def waits_for_event(self) -> None:
        await self.inner()

    async def inner(self) -> None:
        await asyncio.Event().wait()


@ray.remote
def task_that_waits(marker: str) -> None:
    while not Path(marker).exists():
        time.sleep(0.01)


@pytest.fixture
def go(tmp_path: Path) -> Iterator[Path]:
    """A file that does not exist until the test is over, which calls wait for."""
    yield tmp_path / "go"
    (tmp_path / "go").touch()


def stacks(address: str, *target: str) -> list[dict[str, Any]]:
    return list(json.loads(run("stack", *target, "--json", f"--address={address}")))


def functions(process: dict[str, Any], name: str = "MainThread") -> list[str]:
    (stack,) = [stack for stack in process["stacks"] if stack["name"] == name]
    return [frame["function"] for frame in stack["frames"]]


def address_of(cluster: ray.RayContext) -> str:
    return str(cluster.address_info["address"])


def test_threads_of_an_actor_by_its_identifier_and_by_its_process(cluster: ray.RayContext, go: Path) -> None:
    address = address_of(cluster)
    actor = Sleeper.remote()
    pid = ray.get(actor.pid.remote())
    actor.waits_in_a_thread.remote(str(go))

    def beside() -> list[str]:
        (told,) = stacks(address, actor._actor_id.hex()[:12])
        assert (told["pid"], told["actor_id"], told["name"]) == (pid, actor._actor_id.hex(), "Sleeper")
        if told["note"]:
            return []  # It did not get its interpreter in time, as on a busy machine.
        return functions(told, "beside") if any(stack["name"] == "beside" for stack in told["stacks"]) else []

    wait_until(lambda: "waits_here" in beside())
    (told,) = stacks(address, str(pid))
    called = [frame for stack in told["stacks"] for frame in stack["frames"] if frame["function"] == "waits_here"]
    assert [(frame["file"], frame["line"] > 0) for frame in called] == [(__file__, True)]
    assert "waits_in_a_thread" in functions(told)
    # Threads are named where the interpreter was given in time.
    named = f"`Sleeper` beside\n    waits_here ({__file__}:"
    wait_until(lambda: named in run("stack", str(pid), f"--address={address}"))


def let_go(marker: Path) -> None:
    """Native code that waits there goes on."""
    Path(f"{marker}.end").write_text("x")


def test_native_code_that_holds_the_interpreter(cluster: ray.RayContext, tmp_path: Path) -> None:
    actor = Sleeper.remote()
    ray.get(actor.pid.remote())
    marker = tmp_path / "begun"
    os.mkfifo(f"{marker}.end")
    call = actor.waits_in_native_code.remote(str(marker))
    wait_until(marker.exists)

    def held() -> bool:
        (told,) = stacks(address_of(cluster), actor._actor_id.hex())
        return "native code holds the interpreter" in told["note"] and functions(told)[0] == "waits_in_native_code"

    # The native code is called a moment after the file is there.
    wait_until(held)
    (told,) = stacks(address_of(cluster), actor._actor_id.hex())
    assert functions(told)[0] == "waits_in_native_code"
    assert all(stack["frames"] for stack in told["stacks"])
    assert "native code holds the interpreter" in told["note"]
    assert not ray.wait([call], timeout=0)[0], "it was asked meanwhile"
    let_go(marker)
    # Nothing was interrupted, and who waited for the interpreter does not stand in the way.
    assert ray.get(call) is None
    wait_until(lambda: stacks(address_of(cluster), actor._actor_id.hex())[0]["note"] == "")


def test_asyncio_tasks_tell_what_they_wait_for(cluster: ray.RayContext) -> None:
    actor = Async.remote()
    ray.get(actor.pid.remote())
    calls = [actor.waits_for_event.remote() for _ in range(2)]

    def waiting() -> list[list[str]]:
        (told,) = stacks(address_of(cluster), actor._actor_id.hex())
        tasks = [stack for stack in told["stacks"] if stack["is_task"]]
        named = [[frame["function"] for frame in stack["frames"]] for stack in tasks]
        return [names for names in named if "waits_for_event" in names]

    wait_until(lambda: [names[:3] for names in waiting()] == [["wait", "inner", "waits_for_event"]] * 2)
    # They are known where the interpreter was given in time.
    words = ("stack", actor._actor_id.hex(), f"--address={address_of(cluster)}")
    wait_until(lambda: "2 asyncio tasks in wait (" in run(*words))
    del calls
    ray.kill(actor)


def test_a_task_that_runs_and_one_that_does_not(cluster: ray.RayContext, go: Path) -> None:
    address = address_of(cluster)
    running = task_that_waits.remote(str(go))
    wait_until(lambda: [row.state for row in state.list_tasks(filters=[("name", "=", "task_that_waits")])] == ["RUNNING"])
    (told,) = stacks(address, running.task_id().hex())
    assert "task_that_waits" in functions(told)
    go.touch()
    ray.get(running)
    error = run("stack", running.task_id().hex(), f"--address={address}", check=False)
    assert "is FINISHED: no process runs it now" in error
    assert "no process of the cluster's is there that `4194303` names" in run("stack", "4194303", f"--address={address}", check=False)


def test_the_driver_and_processes_that_do_not_answer_are_there(cluster: ray.RayContext) -> None:
    actor = Sleeper.remote()
    pid = ray.get(actor.pid.remote())
    with stopped(pid):
        told = {row["pid"]: row for row in stacks(address_of(cluster))}
    assert told[os.getpid()]["worker_type"] == "DRIVER"
    assert "test_the_driver_and_processes_that_do_not_answer_are_there" in functions(told[os.getpid()])
    assert told[pid]["stacks"] == [] and "did not answer" in told[pid]["note"]


def test_a_program_that_has_the_signal_or_has_closed_the_file(cluster: ray.RayContext, tmp_path: Path) -> None:
    @ray.remote(max_calls=1)
    def spoils(marker: str, what: str) -> None:
        number = signal.SIGRTMIN + 20
        if what == "signal":
            signal.signal(number, lambda *_: None)
        else:
            # One that was closed meanwhile leads nowhere.
            opened = {int(number): os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")}
            (file,) = [number for number, target in opened.items() if target.startswith("/memfd:stacks")]
            with open(marker + ".other", "w") as other:
                os.dup2(other.fileno(), file)
        end = os.open(f"{marker}.end", os.O_RDWR)
        Path(marker).touch()
        while ctypes.PyDLL(None).read(end, ctypes.create_string_buffer(1), 1) != 1:
            pass

    for what, why in (("signal", "the program handles signal"), ("file", "has closed the file")):
        marker = tmp_path / what
        os.mkfifo(f"{marker}.end")
        call = spoils.remote(str(marker), what)
        wait_until(marker.exists)
        # Until the native code is called, which is a moment later, the interpreter answers.
        wait_until(lambda call=call, why=why: why in stacks(address_of(cluster), call.task_id().hex())[0]["note"])
        (told,) = stacks(address_of(cluster), call.task_id().hex())
        assert told["stacks"] == [] and why in told["note"], told
        let_go(marker)
        ray.get(call)
    assert (tmp_path / "file.other").read_text() == "", "nothing was written to the program's own file"


def test_a_process_that_nobody_may_trace(cluster: ray.RayContext, monkeypatch: pytest.MonkeyPatch) -> None:
    actor = Sleeper.remote()
    pid = ray.get(actor.be_closed.remote())
    # Not even this process, which has its user, may look into it now, but for root; and there is no other program to help.
    monkeypatch.setenv("PATH", "/nothing")
    assert f"pid {pid} on " in run("stack", str(pid), f"--address={address_of(cluster)}")


def test_processes_of_every_machine_and_those_of_one(go: Path) -> None:
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        other = cluster.add_node(num_cpus=1, resources={"other": 1})
        ray.init(address=cluster.address)
        actor = Sleeper.options(resources={"other": 1}, num_cpus=0).remote()
        pid = ray.get(actor.pid.remote())
        actor.waits_here.remote(str(go))
        wait_until(lambda: "waits_here" in functions(stacks(cluster.address, actor._actor_id.hex())[0]))
        (told,) = stacks(cluster.address, str(pid))
        assert told["node_id"] == other.node_id
        assert {pid, os.getpid()} <= {row["pid"] for row in stacks(cluster.address, "--all")}
        assert pid not in {row["pid"] for row in stacks(cluster.address)}
    finally:
        ray.shutdown()
        cluster.shutdown()
