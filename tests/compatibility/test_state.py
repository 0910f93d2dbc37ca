"""State API: lists of what runs and ran."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray
from ray.util import state
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

Eventually = Callable[..., Any]


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    """The state API of Ray asks the dashboard."""
    ray.shutdown()
    context = ray.init(num_cpus=2, include_dashboard=True)
    # Ray's state API looks for any cluster of this machine otherwise.
    os.environ["RAY_ADDRESS"] = context.address_info["address"]
    yield
    del os.environ["RAY_ADDRESS"]
    ray.shutdown()


@ray.remote(num_cpus=0)
class Listed:
    def pid(self) -> int:
        return os.getpid()

    def fail(self) -> None:
        raise ValueError("the reason")

    def leave(self) -> None:
        ray.actor.exit_actor()

    def crash(self) -> None:
        os._exit(3)


@ray.remote(num_cpus=0)
class Broken:
    def __init__(self, path: Any) -> None:
        path.write_text(str(os.getpid()))
        raise ValueError("the reason")


@ray.remote(num_cpus=0, max_calls=1)
def pid_once() -> int:
    return os.getpid()


@ray.remote(num_cpus=1)
def listed() -> str:
    return ray.get_runtime_context().get_task_id()


def one(kind: Callable[..., list], eventually: Eventually, *filters: tuple, detail: bool = False) -> Any:
    """The one row that fits, once it is there."""
    return eventually(lambda: kind(filters=list(filters), detail=detail))[0]


def test_an_actor_is_listed(eventually: Eventually) -> None:
    actor = Listed.options(name="state-actor").remote()
    pid = ray.get(actor.pid.remote())
    row = one(state.list_actors, eventually, ("name", "=", "state-actor"), ("state", "=", "ALIVE"))
    assert (row.class_name, row.pid, row.state) == ("Listed", pid, "ALIVE")
    assert row.node_id == ray.get_runtime_context().get_node_id()
    assert row.job_id == ray.get_runtime_context().get_job_id()


def test_an_actor_is_got_by_its_identifier(eventually: Eventually) -> None:
    actor = Listed.remote()
    ray.get(actor.pid.remote())
    eventually(lambda: state.get_actor(actor._actor_id.hex()).state == "ALIVE")
    assert state.get_actor(actor._actor_id.hex()).required_resources == {}


def test_a_dead_actor_keeps_its_process_and_node(eventually: Eventually) -> None:
    actor = Listed.options(name="state-dead").remote()
    pid = ray.get(actor.pid.remote())
    ray.kill(actor)
    row = one(state.list_actors, eventually, ("name", "=", "state-dead"), ("state", "=", "DEAD"), detail=True)
    assert (row.pid, row.node_id) == (pid, ray.get_runtime_context().get_node_id())


def test_a_dead_actor_has_a_cause(eventually: Eventually) -> None:
    actor = Listed.options(name="state-cause").remote()
    pid = ray.get(actor.pid.remote())
    ray.kill(actor)
    row = one(state.list_actors, eventually, ("name", "=", "state-cause"), ("state", "=", "DEAD"), detail=True)
    cause = row.death_cause["actor_died_error_context"]
    assert "killed by `ray.kill`" in cause["error_message"]
    assert (cause["reason"], cause["pid"], cause["class_name"], cause["never_started"]) == ("RAY_KILL", pid, "Listed", False)


def test_an_actor_whose_process_died_says_so(eventually: Eventually) -> None:
    actor = Listed.options(name="state-crashed").remote()
    os.kill(ray.get(actor.pid.remote()), 9)
    row = one(state.list_actors, eventually, ("name", "=", "state-crashed"), ("state", "=", "DEAD"), detail=True)
    assert row.death_cause["actor_died_error_context"]["reason"] == "WORKER_DIED"


def test_a_task_is_listed_by_its_name(eventually: Eventually) -> None:
    task = ray.get(listed.options(name="state-task").remote())
    row = one(state.list_tasks, eventually, ("name", "=", "state-task"), ("state", "=", "FINISHED"))
    assert (row.task_id, row.type) == (task, "NORMAL_TASK")
    assert row.job_id == ray.get_runtime_context().get_job_id()


def test_a_named_task_has_the_name_of_its_function(eventually: Eventually) -> None:
    ray.get(listed.options(name="state-function").remote())
    row = one(state.list_tasks, eventually, ("name", "=", "state-function"), ("state", "=", "FINISHED"))
    assert row.func_or_class_name == "listed"


def test_a_task_has_its_resources(eventually: Eventually) -> None:
    ray.get(listed.options(name="state-detail").remote())
    row = one(state.list_tasks, eventually, ("name", "=", "state-detail"), ("state", "=", "FINISHED"), detail=True)
    assert row.required_resources == {"CPU": 1.0}


def test_a_task_has_its_parent(eventually: Eventually) -> None:
    ray.get(listed.options(name="state-parent").remote())
    row = one(state.list_tasks, eventually, ("name", "=", "state-parent"), ("state", "=", "FINISHED"), detail=True)
    assert row.parent_task_id == "f" * 40 + ray.get_runtime_context().get_job_id()


def test_a_task_has_times_in_order(eventually: Eventually) -> None:
    ray.get(listed.options(name="state-times").remote())
    row = one(state.list_tasks, eventually, ("name", "=", "state-times"), ("state", "=", "FINISHED"), detail=True)
    assert 0 < row.start_time_ms <= row.end_time_ms


def test_a_task_has_the_time_of_its_call(eventually: Eventually) -> None:
    ray.get(listed.options(name="state-created").remote())
    row = one(state.list_tasks, eventually, ("name", "=", "state-created"), ("state", "=", "FINISHED"), detail=True)
    assert 0 < row.creation_time_ms <= row.start_time_ms


def test_a_task_has_the_events_of_its_life(eventually: Eventually) -> None:
    ray.get(listed.options(name="state-events").remote())
    row = one(state.list_tasks, eventually, ("name", "=", "state-events"), ("state", "=", "FINISHED"), detail=True)
    names = [event["state"] for event in row.events]
    assert names == ["PENDING_ARGS_AVAIL", "PENDING_NODE_ASSIGNMENT", "SUBMITTED_TO_WORKER", "RUNNING", "FINISHED"]
    times = [event["created_ms"] for event in row.events]
    assert times == sorted(times)


def test_a_call_of_an_actor_has_the_events_of_its_life(eventually: Eventually) -> None:
    @ray.remote(num_cpus=0)
    class Actor:
        def method(self) -> None:
            pass

    actor = Actor.remote()
    ray.get(actor.method.options(name="state-method-events").remote())
    row = one(state.list_tasks, eventually, ("name", "=", "state-method-events"), ("state", "=", "FINISHED"), detail=True)
    names = [event["state"] for event in row.events]
    assert names[-4:] == ["SUBMITTED_TO_WORKER", "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY", "RUNNING", "FINISHED"]


def test_a_call_that_waits_for_its_turn_in_its_actor_says_so(eventually: Eventually) -> None:
    @ray.remote(num_cpus=0)
    class Actor:
        def wait(self) -> None:
            time.sleep(600)

        def method(self) -> None:
            pass

    actor = Actor.remote()
    waiting = actor.wait.remote()
    queued = actor.method.options(name="state-method-queued").remote()
    of_it = [("name", "=", "state-method-queued"), ("state", "=", "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY")]
    one(state.list_tasks, eventually, *of_it)
    ray.kill(actor)
    for reference in (waiting, queued):
        with pytest.raises(ray.exceptions.RayActorError):
            ray.get(reference)


def test_a_nested_task_has_its_parent(eventually: Eventually) -> None:
    @ray.remote(num_cpus=0)
    def parent() -> str:
        ray.get(listed.options(name="state-child", num_cpus=0).remote())
        return ray.get_runtime_context().get_task_id()

    task = ray.get(parent.remote())
    row = one(state.list_tasks, eventually, ("name", "=", "state-child"), ("state", "=", "FINISHED"), detail=True)
    assert row.parent_task_id == task


def test_tasks_are_found_by_their_parent(eventually: Eventually) -> None:
    ray.get(listed.options(name="state-of-driver").remote())
    driver = "f" * 40 + ray.get_runtime_context().get_job_id()
    wanted = [("parent_task_id", "=", driver), ("name", "=", "state-of-driver")]
    assert eventually(lambda: state.list_tasks(filters=wanted))[0].func_or_class_name == "listed"


def test_a_task_that_waits_for_an_argument_has_events(eventually: Eventually, tmp_path: Any) -> None:
    @ray.remote(num_cpus=0)
    def slow() -> None:
        while not (tmp_path / "go").exists():
            pass

    @ray.remote(num_cpus=0)
    def use(_: None) -> None: ...

    used = use.options(name="state-argument").remote(slow.remote())
    row = one(state.list_tasks, eventually, ("name", "=", "state-argument"), detail=True)
    assert (row.state, [event["state"] for event in row.events]) == ("PENDING_ARGS_AVAIL", ["PENDING_ARGS_AVAIL"])
    (tmp_path / "go").touch()
    ray.get(used)


def test_a_task_in_a_group_names_it(eventually: Eventually) -> None:
    group = placement_group([{"CPU": 1}])
    assert group.wait(30)
    within = PlacementGroupSchedulingStrategy(group)
    ray.get(listed.options(name="state-grouped", scheduling_strategy=within).remote())
    row = one(state.list_tasks, eventually, ("name", "=", "state-grouped"), ("state", "=", "FINISHED"), detail=True)
    assert row.placement_group_id == group.id.hex()
    remove_placement_group(group)


def test_a_task_that_waits_in_a_group_names_it(eventually: Eventually) -> None:
    group = placement_group([{"CPU": 1}])
    assert group.wait(30)
    within = PlacementGroupSchedulingStrategy(group)
    holder = Listed.options(num_cpus=1, scheduling_strategy=within).remote()
    ray.get(holder.pid.remote())
    waits = listed.options(name="state-waits-grouped", scheduling_strategy=within).remote()
    row = one(state.list_tasks, eventually, ("name", "=", "state-waits-grouped"), detail=True)
    assert row.placement_group_id == group.id.hex()
    remove_placement_group(group)
    with pytest.raises(ray.exceptions.RayError):
        ray.get(waits, timeout=60)


def test_an_actor_in_a_group_names_it(eventually: Eventually) -> None:
    group = placement_group([{"CPU": 1}])
    assert group.wait(30)
    member = Listed.options(num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote()
    ray.get(member.pid.remote())
    row = one(state.list_actors, eventually, ("actor_id", "=", member._actor_id.hex()), detail=True)
    assert row.placement_group_id == group.id.hex()
    remove_placement_group(group)


def test_a_task_has_its_runtime_environment(eventually: Eventually) -> None:
    ray.get(listed.options(name="state-environment", runtime_env={"env_vars": {"STATE_OF": "tasks"}}).remote())
    row = one(state.list_tasks, eventually, ("name", "=", "state-environment"), ("state", "=", "FINISHED"), detail=True)
    assert json.loads(row.runtime_env_info["serialized_runtime_env"])["env_vars"] == {"STATE_OF": "tasks"}


def test_a_failed_task_that_was_the_last_of_its_worker_says_so(eventually: Eventually) -> None:
    @ray.remote(max_retries=0, max_calls=1)
    def failing_once() -> None:
        raise ValueError("the reason")

    with pytest.raises(ValueError):
        ray.get(failing_once.remote())

    def error() -> str:
        rows = state.list_tasks(filters=[("name", "=", "failing_once"), ("state", "=", "FAILED")], detail=True)
        return rows[0].error_message if rows and "reached max_calls=1" in rows[0].error_message else ""

    text = eventually(error)
    assert text.startswith("User exception:\nray::failing_once()")
    assert "\n\nSystem error:\nIntentionalSystemExit: Worker exits with an exit code 0." in text


def test_a_failed_task_has_its_error(eventually: Eventually) -> None:
    @ray.remote(max_retries=0)
    def failing() -> None:
        raise ValueError("the reason")

    with pytest.raises(ValueError):
        ray.get(failing.remote())
    row = one(state.list_tasks, eventually, ("name", "=", "failing"), ("state", "=", "FAILED"), detail=True)
    assert row.error_type == "TASK_EXECUTION_EXCEPTION"
    assert row.error_message.startswith("User exception:\nray::failing()")
    assert "the reason" in row.error_message


def test_a_method_is_a_task_of_its_actor(eventually: Eventually) -> None:
    actor = Listed.remote()
    ray.get(actor.pid.options(name="state-method").remote())
    row = one(state.list_tasks, eventually, ("name", "=", "state-method"), ("state", "=", "FINISHED"))
    assert (row.type, row.actor_id) == ("ACTOR_TASK", actor._actor_id.hex())


def test_a_task_is_got_by_its_identifier_or_its_reference(eventually: Eventually) -> None:
    reference = listed.remote()
    task = ray.get(reference)
    eventually(lambda: state.get_task(task))
    assert state.get_task(task).task_id == state.get_task(reference).task_id == task


def test_a_task_that_waits_is_listed_as_pending(eventually: Eventually, tmp_path: Any) -> None:
    @ray.remote(num_cpus=2)
    def hold() -> None:
        (tmp_path / "began").touch()
        while not (tmp_path / "go").exists():
            pass

    first = hold.remote()
    eventually((tmp_path / "began").exists)
    second = listed.options(name="state-waits").remote()
    row = one(state.list_tasks, eventually, ("name", "=", "state-waits"))
    (tmp_path / "go").touch()
    assert row.state.startswith("PENDING")
    ray.get([first, second], timeout=60)


def test_filters_may_exclude(eventually: Eventually) -> None:
    ray.get(listed.options(name="state-excluded").remote())
    eventually(lambda: state.list_tasks(filters=[("name", "=", "state-excluded")]))
    assert "state-excluded" not in [row.name for row in state.list_tasks(filters=[("name", "!=", "state-excluded")])]


def test_a_limit_is_the_most_rows(eventually: Eventually) -> None:
    ray.get([listed.remote() for _ in range(3)])
    eventually(lambda: len(state.list_tasks()) >= 3)
    assert len(state.list_tasks(limit=2, raise_on_missing_output=False)) == 2


def test_an_unknown_predicate_is_a_value_error() -> None:
    with pytest.raises(ValueError):
        state.list_tasks(filters=[("name", "~", "x")])


def test_nodes_are_listed() -> None:
    (row,) = state.list_nodes()
    assert (row.node_id, row.state, row.is_head_node) == (ray.get_runtime_context().get_node_id(), "ALIVE", True)
    assert row.resources_total["CPU"] == 2.0


def test_the_job_is_listed() -> None:
    job = ray.get_runtime_context().get_job_id()
    row = next(row for row in state.list_jobs() if row.job_id == job)
    assert (row.type, row.status) == ("DRIVER", "RUNNING")
    assert row.driver_info.pid == str(os.getpid())


def test_workers_are_listed() -> None:
    actor = Listed.remote()
    pid = ray.get(actor.pid.remote())
    row = next(row for row in state.list_workers(detail=True) if row.pid == pid)
    assert (row.worker_type, row.is_alive, row.node_id) == ("WORKER", True, ray.get_runtime_context().get_node_id())


def ended(pid: int, eventually: Eventually) -> Any:
    """The row of the worker of this number, once it has ended."""

    def find() -> Any:
        return [row for row in state.list_workers(detail=True, limit=1000) if row.pid == pid and not row.is_alive]

    return eventually(find, 60)[0]


def test_a_worker_that_ended_is_listed_with_its_times(eventually: Eventually) -> None:
    actor = Listed.remote()
    pid = ray.get(actor.pid.remote())
    ray.kill(actor)
    row = ended(pid, eventually)
    assert 0 < row.start_time_ms <= row.end_time_ms
    assert state.get_worker(row.worker_id).exit_type == row.exit_type


def test_a_worker_that_lives_has_no_end() -> None:
    actor = Listed.remote()
    pid = ray.get(actor.pid.remote())
    row = next(row for row in state.list_workers(detail=True, limit=1000) if row.pid == pid)
    assert (row.exit_type, row.end_time_ms) == (None, 0)
    assert row.start_time_ms > 0


@pytest.mark.parametrize(
    ("end", "kind", "detail"),
    [
        (lambda actor, _: ray.kill(actor), "INTENDED_SYSTEM_EXIT", "it was killed by `ray.kill`"),
        (lambda actor, _: actor.leave.remote(), "INTENDED_USER_EXIT", "exit_actor()"),
        (lambda _, pid: os.kill(pid, signal.SIGKILL), "SYSTEM_ERROR", ""),
        (lambda _, pid: os.kill(pid, signal.SIGTERM), "SYSTEM_ERROR", "SIGTERM"),
        (lambda actor, _: actor.crash.remote(), "SYSTEM_ERROR", ""),
    ],
    ids=["by_kill", "by_exit_actor", "by_sigkill", "by_sigterm", "by_a_crash"],
)
def test_an_end_of_an_actors_worker_has_its_kind(end: Any, kind: str, detail: str, eventually: Eventually) -> None:
    actor = Listed.remote()
    pid = ray.get(actor.pid.remote())
    end(actor, pid)
    row = ended(pid, eventually)
    assert row.exit_type == kind
    assert detail in row.exit_detail


def test_a_worker_whose_actor_nobody_has_is_ended_by_the_system(eventually: Eventually) -> None:
    actor = Listed.remote()
    pid = ray.get(actor.pid.remote())
    del actor
    row = ended(pid, eventually)
    assert row.exit_type == "INTENDED_SYSTEM_EXIT"
    assert "all references to the actor were removed" in row.exit_detail


def test_a_worker_that_reached_max_calls_left_by_itself(eventually: Eventually) -> None:
    row = ended(ray.get(pid_once.remote()), eventually)
    assert row.exit_type == "INTENDED_USER_EXIT"
    assert "max_calls" in row.exit_detail


def test_a_worker_whose_constructor_raised_is_a_user_error(eventually: Eventually, tmp_path: Any) -> None:
    path = tmp_path / "pid"
    broken = Broken.remote(path)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(broken.__ray_ready__.remote())
    assert ended(int(path.read_text()), eventually).exit_type == "USER_ERROR"


def test_a_worker_whose_group_was_removed_says_so(eventually: Eventually) -> None:
    group = placement_group([{"CPU": 1}])
    assert group.wait(30)
    actor = Listed.options(num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote()
    pid = ray.get(actor.pid.remote())
    remove_placement_group(group)
    row = ended(pid, eventually)
    assert row.exit_type == "INTENDED_SYSTEM_EXIT"
    assert "placement group was removed" in row.exit_detail


def test_a_node_has_the_time_of_its_start() -> None:
    (row,) = state.list_nodes(detail=True)
    assert 0 < row.start_time_ms <= time.time() * 1000
    assert row.end_time_ms == 0


def test_objects_are_listed(eventually: Eventually) -> None:
    reference = ray.put(b"x" * 200_000)
    row = one(state.list_objects, eventually, ("object_id", "=", reference.hex()))
    assert row.object_size >= 200_000 and row.pid == os.getpid()


def test_placement_groups_are_listed(eventually: Eventually) -> None:
    group = placement_group([{"CPU": 1}], name="state-group")
    assert group.wait(30)
    row = one(state.list_placement_groups, eventually, ("name", "=", "state-group"), detail=True)
    assert (row.state, row.placement_group_id) == ("CREATED", group.id.hex())
    assert row.bundles[0]["unit_resources"] == {"CPU": 1.0}
    assert row.bundles[0]["bundle_id"] == {"placement_group_id": group.id.hex(), "bundle_index": 0}
    remove_placement_group(group)


def test_tasks_are_counted_by_function(eventually: Eventually) -> None:
    ray.get([listed.remote() for _ in range(2)])
    summary = eventually(lambda: state.summarize_tasks()["cluster"]["summary"].get("listed"))
    assert summary["type"] == "NORMAL_TASK"


def test_actors_are_counted_by_class(eventually: Eventually) -> None:
    actor = Listed.remote()
    ray.get(actor.pid.remote())
    counts = eventually(lambda: state.summarize_actors()["cluster"]["summary"].get("Listed"))["state_counts"]
    assert sum(counts.values()) >= 1


def test_logs_are_listed_and_read(eventually: Eventually) -> None:
    @ray.remote(num_cpus=0)
    class Speaking:
        def speak(self) -> int:
            print("one\ntwo\nthree")
            return os.getpid()

    speaking = Speaking.remote()
    pid = ray.get(speaking.speak.remote())
    node = ray.get_runtime_context().get_node_id()

    def listed() -> Any:
        try:
            return state.list_logs(node_id=node, glob_filter=f"*{pid}.out")
        except OSError:  # Ray's agent of the node, whom the dashboard asks, may not be there yet
            return None

    files = eventually(listed, 60)
    assert [name for name in files["worker_out"] if name.endswith(f"-{pid}.out")]
    eventually(lambda: "three" in "".join(state.get_log(node_id=node, pid=pid)))
    assert "".join(state.get_log(node_id=node, pid=pid, tail=2)).split() == ["two", "three"]


def test_rows_are_subscripted_and_attributed() -> None:
    (row,) = state.list_nodes()
    assert row["node_id"] == row.node_id


def test_what_is_unknown_is_none() -> None:
    assert state.get_actor("00" * 16) is None
