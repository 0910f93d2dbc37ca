"""`ray.util.state`, `ray.timeline`, and the commands that show the same."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.job_submission import JobStatus, JobType
from ray.util import state
from ray.util.state.common import ActorState, TaskState
from ray.util.state.exception import RayStateApiException, ServerUnavailable

from commands import run
from watching import stopped, wait_until


@ray.remote
def quick(number: int) -> int:
    return number


@ray.remote(max_calls=1)
def once() -> int:
    return os.getpid()


@ray.remote(max_retries=0)
def raises() -> None:
    raise ValueError("boom")


@ray.remote(max_retries=0)
def dies() -> None:
    os._exit(3)


@ray.remote(max_retries=1, retry_exceptions=True)
def raises_once(marker: str) -> str:
    if not Path(marker).exists():
        Path(marker).touch()
        raise ValueError("the first time")
    return "done"


@ray.remote
def waits_for(marker: str) -> None:
    while not Path(marker).exists():
        time.sleep(0.01)


@ray.remote
class Counter:
    def count(self) -> int:
        return 1

    def fail(self) -> None:
        raise KeyError("x")


@ray.remote
class Broken:
    def __init__(self) -> None:
        raise RuntimeError("cannot be made")


@ray.remote
class Slow:
    def __init__(self, marker: str) -> None:
        while not Path(marker).exists():
            time.sleep(0.01)

    def __repr__(self) -> str:
        return "Slow(shown)"

    def count(self) -> int:
        return 1

    def leave(self) -> None:
        ray.actor.exit_actor()


@ray.remote
class Made:
    def count(self) -> int:
        return 1


@ray.remote
def makes_actor() -> tuple[str, Any]:
    made = Made.options(lifetime="detached", name="made by a task").remote()
    ray.get(made.count.remote())
    return ray.get_runtime_context().get_task_id(), made


@ray.remote(max_retries=1)
def dies_once(marker: str) -> str:
    if not Path(marker).exists():
        Path(marker).touch()
        os._exit(3)
    return "done"


def tasks(name: str, **more: Any) -> list[TaskState]:
    return state.list_tasks(filters=[("name", "=", name)], limit=1000, **more)


def ended(reference: Any) -> None:
    assert ray.wait([reference], timeout=60)[0], "it did not end in time"


def test_tasks_that_ended(cluster: ray.RayContext) -> None:
    ended(quick.remote(1))
    ended(raises.remote())
    done = tasks("quick", detail=True)[0]
    assert isinstance(done, TaskState)
    assert (done.state, done.type, done.attempt_number, done.error_type) == ("FINISHED", "NORMAL_TASK", 0, None)
    assert done.start_time_ms is not None and done.end_time_ms is not None
    assert abs(done.start_time_ms / 1000 - time.time()) < 600
    assert done.start_time_ms <= done.end_time_ms
    assert done.required_resources == {"CPU": 1.0}
    stages = ["PENDING_ARGS_AVAIL", "PENDING_NODE_ASSIGNMENT", "SUBMITTED_TO_WORKER", "RUNNING", "FINISHED"]
    assert [event["state"] for event in done.events or []] == stages
    times = [event["created_ms"] for event in done.events or []]
    assert [times[0], *times[-2:]] == [done.creation_time_ms, done.start_time_ms, done.end_time_ms]
    assert times == sorted(times)
    assert done.job_id == ray.get_runtime_context().get_job_id()
    assert done.node_id == ray.nodes()[0]["NodeID"]
    assert done["state"] == done.get("state") == done.asdict()["state"]
    assert tasks("quick")[0].start_time_ms is None, "it is a field of the detailed list"
    failed = tasks("raises")[0]
    assert (failed.state, failed.error_type) == ("FAILED", "TASK_EXECUTION_EXCEPTION")
    ended(dies.remote())
    wait_until(lambda: tasks("dies"))
    crashed = tasks("dies", detail=True)[0]
    assert (crashed.state, crashed.error_type) == ("FAILED", "WORKER_DIED")
    assert "status 3" in str(crashed.error_message)
    assert crashed.required_resources == {"CPU": 1.0}
    stages = ["PENDING_ARGS_AVAIL", "PENDING_NODE_ASSIGNMENT", "SUBMITTED_TO_WORKER", "FAILED"]
    assert [event["state"] for event in crashed.events or []] == stages
    gone = next(worker for worker in state.list_workers(detail=True) if worker.worker_id == crashed.worker_id)
    assert (gone.pid, gone.node_id, gone.is_alive) == (crashed.worker_pid, crashed.node_id, False)


def test_what_ended_outlives_the_process_that_ran_it(cluster: ray.RayContext) -> None:
    pid = ray.get(once.remote())
    wait_until(lambda: pid not in [worker.pid for worker in state.list_workers() if worker.is_alive])
    assert [(row.state, row.worker_pid) for row in tasks("once")] == [("FINISHED", pid)]


def test_every_attempt_has_its_row(cluster: ray.RayContext, tmp_path: Path) -> None:
    reference = raises_once.remote(str(tmp_path / "marker"))
    assert ray.get(reference) == "done"
    attempts = sorted(tasks("raises_once"), key=lambda row: row.attempt_number)
    assert [(row.attempt_number, row.state) for row in attempts] == [(0, "FAILED"), (1, "FINISHED")]
    found = state.get_task(reference)
    assert isinstance(found, list)
    assert {row.task_id for row in found} == {reference.task_id().hex()}


def test_an_attempt_that_died_with_its_worker_has_its_row(cluster: ray.RayContext, tmp_path: Path) -> None:
    reference = dies_once.remote(str(tmp_path / "marker"))
    assert ray.get(reference) == "done"
    wait_until(lambda: len(tasks("dies_once")) == 2)
    first, second = sorted(tasks("dies_once", detail=True), key=lambda row: row.attempt_number)
    assert (first.state, first.error_type, second.state, second.error_type) == ("FAILED", "WORKER_DIED", "FINISHED", None)
    assert first.worker_id not in (None, second.worker_id)
    assert "another follows" in str(first.error_message)


def test_the_making_of_an_actor_is_a_task(cluster: ray.RayContext, tmp_path: Path) -> None:
    marker = tmp_path / "go"
    environment = {"env_vars": {"MADE": "yes"}}
    actor = Slow.options(num_cpus=0.5, runtime_env=environment).remote(str(marker))
    call = actor.count.remote()

    def row() -> TaskState:
        return tasks("Slow.__init__", detail=True)[0]

    wait_until(lambda: row().start_time_ms)
    begun = row()
    assert (begun.state, begun.end_time_ms, begun.type) == ("RUNNING", None, "ACTOR_CREATION_TASK")
    assert begun.parent_task_id == "ff" * 20 + begun.job_id
    marker.touch()
    ray.get(call)
    made = row()
    stages = ["PENDING_ARGS_AVAIL", "PENDING_NODE_ASSIGNMENT", "SUBMITTED_TO_WORKER", "RUNNING", "FINISHED"]
    assert [event["state"] for event in made.events or []] == stages
    times = [event["created_ms"] for event in made.events or []]
    assert [times[0], *times[-2:]] == [made.creation_time_ms, made.start_time_ms, made.end_time_ms]
    assert times == sorted(times)
    assert made.required_resources == {"CPU": 0.5}
    assert json.loads(made.runtime_env_info["serialized_runtime_env"]) == environment
    shown = state.list_actors(filters=[("class_name", "=", "Slow")], detail=True)[0]
    assert (shown.repr_name, shown.num_restarts_due_to_node_preemption) == ("Slow(shown)", 0)
    assert json.loads(str(shown.serialized_runtime_env)) == environment
    worker = state.get_worker(made.worker_id)
    assert (worker.pid, worker.pid) == (made.worker_pid, shown.pid)
    assert worker.worker_launch_time_ms <= worker.worker_launched_time_ms <= made.start_time_ms
    assert "Slow.__init__" in [event["name"] for event in ray.timeline()]
    # A process that leaves tells what it did.
    ended(actor.leave.remote())
    wait_until(lambda: state.get_actor(shown.actor_id).state == "DEAD")
    assert (row().state, row().worker_pid, row().start_time_ms) == ("FINISHED", shown.pid, made.start_time_ms)


def test_the_task_that_made_an_actor_is_its_parent(cluster: ray.RayContext) -> None:
    parent, made = ray.get(makes_actor.remote())
    filters = [("actor_id", "=", made._actor_id.hex()), ("type", "=", "ACTOR_CREATION_TASK")]
    (row,) = state.list_tasks(filters=filters, detail=True)
    assert (row.parent_task_id, row.state) == (parent, "FINISHED")
    ray.kill(made)


def test_an_actor_that_was_never_placed_was_not_made(cluster: ray.RayContext) -> None:
    actor = Made.options(num_cpus=2, name="never placed").remote()
    other = Made.options(num_cpus=2, name="never placed either").remote()
    waiting = other if ray.wait([actor.count.remote()], timeout=60)[0] else actor
    identifier = waiting._actor_id.hex()
    ray.kill(waiting)
    wait_until(lambda: state.get_actor(identifier).state == "DEAD")
    (row,) = state.list_tasks(filters=[("actor_id", "=", identifier), ("type", "=", "ACTOR_CREATION_TASK")], detail=True)
    assert (row.state, row.error_type, row.start_time_ms) == ("FAILED", "ACTOR_DIED", None)


def test_tasks_under_way(cluster: ray.RayContext, tmp_path: Path) -> None:
    marker = tmp_path / "go"
    references = [waits_for.remote(str(marker)) for _ in range(4)]
    behind = quick.remote(references[0])

    def states() -> list[str]:
        return sorted(row.state for row in tasks("waits_for"))

    wait_until(lambda: states() == ["PENDING_NODE_ASSIGNMENT"] * 2 + ["RUNNING"] * 2)
    running = state.list_tasks(filters=[("name", "=", "waits_for"), ("state", "=", "running")])
    assert all(row.worker_pid not in (None, os.getpid()) for row in running)
    assert [row.state for row in tasks("quick") if row.task_id == behind.task_id().hex()] == ["PENDING_ARGS_AVAIL"]
    assert state.list_tasks(filters=[("name", "=", "waits_for"), ("state", "!=", "RUNNING")], limit=1)[0].worker_pid is None
    marker.touch()
    ray.get([*references, behind])
    assert states() == ["FINISHED"] * 4


def test_actors_and_their_calls(cluster: ray.RayContext) -> None:
    counter = Counter.options(name="shown", num_cpus=0.5).remote()
    assert ray.get(counter.count.remote()) == 1
    ended(counter.fail.remote())
    broken = Broken.remote()
    ended(broken.__ray_ready__.remote())
    row = state.list_actors(filters=[("name", "=", "shown")], detail=True)[0]
    assert isinstance(row, ActorState)
    assert (row.class_name, row.state, row.ray_namespace, row.is_detached) == ("Counter", "ALIVE", "here", False)
    assert row.required_resources == {"CPU": 0.5}
    assert state.get_actor(row.actor_id) == row
    assert state.get_actor("00" * 16) is None
    calls = {call.name: call for call in state.list_tasks(filters=[("actor_id", "=", row.actor_id)])}
    assert {name: (call.type, call.state) for name, call in calls.items()} == {
        "Counter.__init__": ("ACTOR_CREATION_TASK", "FINISHED"),
        "Counter.count": ("ACTOR_TASK", "FINISHED"),
        "Counter.fail": ("ACTOR_TASK", "FAILED"),
    }
    assert calls["Counter.count"].worker_pid == row.pid
    detailed = state.list_tasks(filters=[("actor_id", "=", row.actor_id)], detail=True)
    assert {call.name: call.required_resources for call in detailed} == {
        "Counter.__init__": {"CPU": 0.5}, "Counter.count": {}, "Counter.fail": {}
    }
    dead = state.list_actors(filters=[("class_name", "=", "Broken")], detail=True)[0]
    assert dead.state == "DEAD"
    assert "constructor" in str(dead.death_cause)
    (made,) = tasks("Broken.__init__", detail=True)
    # What it held is known where its process still told.
    assert (made.state, made.required_resources or {}) == ("FAILED", {})
    assert "its constructor raised" in str(made.error_message)
    counts = state.summarize_actors()["cluster"]
    assert counts["summary"]["Counter"] == {"class_name": "Counter", "state_counts": {"ALIVE": 1}}
    assert state.summarize_tasks()["cluster"]["summary"]["Counter.fail"]["state_counts"] == {"FAILED": 1}
    ray.kill(counter)
    wait_until(lambda: state.list_actors(filters=[("name", "=", "shown")])[0].state == "DEAD")


def test_nodes_workers_and_jobs(cluster: ray.RayContext) -> None:
    ended(quick.remote(1))
    node = state.list_nodes()[0]
    assert (node.node_id, node.state, node.resources_total["CPU"]) == (ray.nodes()[0]["NodeID"], "ALIVE", 2.0)
    assert state.get_node(node.node_id).node_ip == node.node_ip
    workers = state.list_workers()
    driver = next(worker for worker in workers if worker.worker_type == "DRIVER")
    assert (driver.pid, driver.is_alive) == (os.getpid(), True)
    assert state.get_worker(driver.worker_id).pid == os.getpid()
    assert any(worker.worker_type == "WORKER" for worker in workers)
    job = state.list_jobs(detail=True)[0]
    assert (job.job_id, job.status, job.driver_info.pid) == (ray.get_runtime_context().get_job_id(), "RUNNING", str(os.getpid()))
    assert (job.type, job.status) == (JobType.DRIVER, JobStatus.RUNNING)
    assert (job.type.value, str(job.status), job.status.is_terminal()) == ("DRIVER", "RUNNING", False)
    assert str(job.entrypoint) == shlex.join(sys.orig_argv)
    assert state.get_job(job.job_id).start_time is not None
    group = ray.util.placement_group([{"CPU": 1}], name="listed")
    ray.get(group.ready())
    row = next(row for row in state.list_placement_groups(detail=True) if row.name == "listed")
    assert (row.placement_group_id, row.state, len(row.bundles)) == (group.id.hex(), "CREATED", 1)
    assert state.get_placement_group(group.id.hex()).state == "CREATED"
    ray.util.remove_placement_group(group)


def test_environments_in_use(cluster: ray.RayContext) -> None:
    ray.get(quick.options(runtime_env={"env_vars": {"SHOWN": "yes"}}).remote(1))
    rows = state.list_runtime_envs(detail=True)
    assert any(row.runtime_env == {"env_vars": {"SHOWN": "yes"}} and row.ref_cnt >= 1 for row in rows)


def test_what_is_remembered_is_bounded(cluster: ray.RayContext) -> None:
    ray.get([quick.remote(number) for number in range(3000)])
    rows = state.list_tasks(limit=10_000, filters=[("name", "=", "quick")])
    assert 1000 <= len(rows) < 3000 + 100


def test_what_is_left_out_and_long_in_coming_is_told_where_that_is_asked(
    cluster: ray.RayContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray.get([quick.remote(number) for number in range(20)])
    with pytest.warns(UserWarning, match=r"^3 of \d+ tasks are told: ask with a higher limit"):
        state.list_tasks(limit=3, _explain=True)
    told: list[str] = []
    monkeypatch.setattr("oxiray.util.state.api.logger.info", lambda text, *parts: told.append(text % parts))
    pid = json.loads((Path(cluster["session_dir"]) / "session.json").read_text())["pid"]
    with stopped(pid), pytest.raises(ServerUnavailable, match="timeout=0.8"):
        state.summarize_tasks(timeout=0.8, _explain=True)
    assert told == [f"{after:.2f} of 0.8 seconds have gone by, and the question for tasks is not answered" for after in (0.1, 0.2, 0.4)]


def test_wrong_questions(cluster: ray.RayContext) -> None:
    with pytest.raises(RayStateApiException, match="`colour`: their keys are task_id"):
        state.list_tasks(filters=[("colour", "=", "red")])
    with pytest.raises(RayStateApiException, match="ask for detail"):
        state.list_tasks(filters=[("language", "=", "PYTHON")])
    with pytest.raises(RayStateApiException, match="at most 10000"):
        state.list_tasks(limit=10_001)
    with pytest.raises(RayStateApiException, match="hexadecimal"):
        state.get_actor("zz")
    with pytest.raises(ValueError, match="Available predicates: =, !="):
        state.list_tasks(filters=[("state", ">", "RUNNING")])
    with pytest.raises(ValueError, match="a filter is"):
        state.list_tasks(filters=[("state", "=")])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="limit=0"):
        state.list_tasks(limit=0)
    with pytest.raises(ServerUnavailable, match="connected to"):
        state.list_tasks(address="10.0.0.1:6379")


def test_the_timeline(cluster: ray.RayContext, tmp_path: Path) -> None:
    reference = quick.remote(5)
    ray.get(reference)
    events = ray.timeline()
    event = next(event for event in events if event["args"]["task_id"] == reference.task_id().hex())
    assert (event["name"], event["ph"], event["cat"]) == ("quick", "X", "task::quick")
    assert event["dur"] >= 0
    assert abs(event["ts"] / 1e6 - time.time()) < 600
    assert ray.timeline(str(tmp_path / "trace.json")) is None
    assert event in json.loads((tmp_path / "trace.json").read_text())


def test_the_command_line_shows_the_same(cluster: ray.RayContext) -> None:
    address = cluster.address_info["address"]
    counter = Counter.options(name="of the command line").remote()
    ray.get(counter.count.remote())
    table = run("list", "actors", f"--address={address}", "--filter", "state=ALIVE")
    assert table.startswith("ACTOR_ID")
    assert "of the command line" in table
    rows = json.loads(run("list", "tasks", f"--address={address}", "--format=json", "--detail", "--limit=2"))
    assert len(rows) == 2
    assert "start_time_ms" in rows[0]
    assert "- node_id: " in run("list", "nodes", f"--address={address}", "--format=yaml")
    assert "Counter.count" in run("summary", "tasks", f"--address={address}")
    identifier = counter._actor_id.hex()
    assert "class_name: Counter" in run("get", "actors", identifier, f"--address={address}")
    assert "their keys are" in run("list", "tasks", f"--address={address}", "--filter", "colour=red", check=False)
    assert "there is no list of `dreams`" in run("list", "dreams", f"--address={address}", check=False)
    assert "key=value" in run("list", "tasks", f"--address={address}", "--filter", "colour", check=False)


@ray.remote
class Stopped:
    def pid(self) -> int:
        return os.getpid()


def test_what_a_stopped_process_knows_is_missing_and_said_to_be(cluster: ray.RayContext) -> None:
    actor = Stopped.remote()
    pid = ray.get(actor.pid.remote())
    with stopped(pid):
        with pytest.raises(RayStateApiException, match=f"Failed to retrieve all tasks .* did not answer .* pid {pid}"):
            state.list_tasks()
        with pytest.warns(UserWarning, match=f"pid {pid}"):
            assert state.list_tasks(raise_on_missing_output=False)
    assert state.list_tasks()


def test_a_question_is_given_up_after_its_timeout(cluster: ray.RayContext) -> None:
    actor = Stopped.remote()
    pid = ray.get(actor.pid.remote())
    task = quick.remote(1)
    ended(task)
    questions: list[Callable[..., Any]] = [
        state.list_tasks,
        state.list_objects,
        state.summarize_tasks,
        partial(state.get_task, task),
        partial(state.get_objects, task.hex()),
    ]
    with stopped(pid):
        for question in questions:
            # The cluster waits 5 s for a process that does not answer.
            with pytest.raises(ServerUnavailable, match=r"given up: .* timeout=0\.1 seconds; ask with a longer one"):
                question(timeout=0.1)
    # The answers that nobody waited for are not taken for those to later questions.
    for question in questions:
        assert question(timeout=float("inf"))


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), None, "3", True])
def test_a_timeout_that_cannot_be_waited_for(cluster: ray.RayContext, timeout: Any) -> None:
    for ask in (state.list_nodes, state.summarize_actors, partial(state.get_job, "00"), partial(state.get_node, "00")):
        with pytest.raises(ValueError, match="a timeout is a number of seconds above 0"):
            ask(timeout=timeout)
