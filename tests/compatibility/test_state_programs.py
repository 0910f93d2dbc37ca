"""Programs with the state API: filters, details, counts, and logs of the user guide."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.util import state
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.state.common import (
    ActorState,
    GetApiOptions,
    ListApiOptions,
    StateResource,
    SummaryApiOptions,
    SummaryResource,
)

Eventually = Callable[..., Any]


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    """The state API of Ray asks the dashboard."""
    ray.shutdown()
    context = ray.init(num_cpus=2, resources={"part": 2}, include_dashboard=True)
    os.environ["RAY_ADDRESS"] = context.address_info["address"]
    yield
    del os.environ["RAY_ADDRESS"]
    ray.shutdown()


@ray.remote(num_cpus=0)
class Kept:
    def value(self) -> int:
        return 1

    def wait(self, path: Path) -> None:
        while not path.exists():
            time.sleep(0.01)


@ray.remote(num_cpus=0)
def numbered(value: int) -> int:
    return value


@ray.remote(num_cpus=0)
def failing() -> None:
    raise ValueError("of this task")


def test_finished_tasks_are_found_by_state_and_name(eventually: Eventually) -> None:
    ray.get([numbered.options(name="by_name").remote(index) for index in range(3)])
    rows = eventually(
        lambda: (
            (found := state.list_tasks(filters=[("name", "=", "by_name"), ("state", "=", "FINISHED")]))
            and len(found) == 3
            and found
        )
    )
    assert {row.type for row in rows} == {"NORMAL_TASK"}
    assert {row.attempt_number for row in rows} == {0}
    assert {row.node_id for row in rows} == {ray.get_runtime_context().get_node_id()}


def test_failed_tasks_have_their_error(eventually: Eventually) -> None:
    reference = failing.options(name="fails_here").remote()
    ray.wait([reference])
    (row,) = eventually(lambda: state.list_tasks(filters=[("name", "=", "fails_here"), ("state", "=", "FAILED")], detail=True))
    assert row.error_type == "TASK_EXECUTION_EXCEPTION"
    assert "of this task" in row.error_message


def test_each_attempt_of_a_task_is_a_row(tmp_path: Path, eventually: Eventually) -> None:
    @ray.remote(num_cpus=0, max_retries=1, retry_exceptions=True)
    def twice() -> None:
        if not (tmp_path / "once").exists():
            (tmp_path / "once").write_text("")
            raise OSError("again")

    ray.get(twice.options(name="tries_twice").remote())
    attempts = {(0, "FAILED"), (1, "FINISHED")}
    eventually(
        lambda: (
            {(row.attempt_number, row.state) for row in state.list_tasks(filters=[("name", "=", "tries_twice")])} == attempts
        )
    )


def test_filters_are_all_to_hold(eventually: Eventually) -> None:
    one, other = Kept.options(name="first kept").remote(), Kept.options(name="second kept").remote()
    ray.get([one.value.remote(), other.value.remote()])
    eventually(lambda: len(state.list_actors(filters=[("class_name", "=", "Kept"), ("state", "=", "ALIVE")])) >= 2)
    rows = state.list_actors(filters=[("state", "=", "ALIVE"), ("name", "=", "first kept")])
    assert [row.name for row in rows] == ["first kept"]
    assert "first kept" not in [row.name for row in state.list_actors(filters=[("name", "!=", "first kept")])]


def test_a_client_lists_and_counts_what_is_named_by_a_value(eventually: Eventually) -> None:
    client = state.StateApiClient()
    kept = Kept.options(name="of the client").remote()
    ray.get(kept.value.remote())
    options = ListApiOptions(filters=[("name", "=", "of the client"), ("state", "=", "ALIVE")], limit=5, detail=True)

    def rows() -> Any:
        return client.list(StateResource.ACTORS, options=options, raise_on_missing_output=True)

    assert eventually(rows)[0]["actor_id"] == kept._actor_id.hex()
    found = client.get(StateResource.ACTORS, id=kept._actor_id.hex(), options=GetApiOptions())
    assert found["name"] == "of the client"
    counted = client.summary(SummaryResource.ACTORS, options=SummaryApiOptions(), raise_on_missing_output=True)
    assert counted["cluster"]["total_actors"] >= 1
    with pytest.raises(ValueError, match="Unsupported filter predicate < is given. Available predicates: =, !=."):
        ListApiOptions(filters=[("name", "<", "a")])


def test_rows_know_their_columns() -> None:
    assert {"actor_id", "class_name", "state", "job_id", "name", "node_id", "pid"} <= ActorState.base_columns()
    assert {"required_resources", "is_detached"} <= ActorState.detail_columns() - ActorState.base_columns()
    assert {"state", "name"} <= ActorState.filterable_columns()


def test_a_filter_without_a_fit_gives_nothing() -> None:
    assert state.list_actors(filters=[("name", "=", "no such actor")]) == []


@pytest.mark.parametrize("filters", [[("state", "<", "ALIVE")], [("state",)], "state=ALIVE", [("state", "ALIVE")]], ids=str)
def test_this_filter_is_refused(filters: Any) -> None:
    with pytest.raises(Exception):
        state.list_actors(filters=filters)


def test_a_limit_of_one_gives_one_row(eventually: Eventually) -> None:
    ray.get([numbered.remote(index) for index in range(3)])
    eventually(lambda: len(state.list_tasks()) >= 2)
    assert len(state.list_tasks(limit=1)) == 1


def test_rows_are_dictionaries_too(eventually: Eventually) -> None:
    kept = Kept.options(name="as dictionary").remote()
    ray.get(kept.value.remote())
    (row,) = eventually(lambda: state.list_actors(filters=[("name", "=", "as dictionary"), ("state", "=", "ALIVE")]))
    assert row["actor_id"] == row.actor_id == kept._actor_id.hex()
    assert row.get("class_name") == "Kept"


def test_a_row_of_detail_has_more_than_one_without(eventually: Eventually) -> None:
    kept = Kept.options(name="detailed", num_cpus=0.5, resources={"part": 1}).remote()
    ray.get(kept.value.remote())
    (row,) = eventually(lambda: state.list_actors(filters=[("name", "=", "detailed"), ("state", "=", "ALIVE")], detail=True))
    assert row.required_resources == {"CPU": 0.5, "part": 1.0}
    assert row.is_detached is False
    assert row.num_restarts in (0, "0")


def test_a_detached_actor_is_marked_so(eventually: Eventually) -> None:
    kept = Kept.options(name="detached here", lifetime="detached").remote()
    ray.get(kept.value.remote())
    (row,) = eventually(lambda: state.list_actors(filters=[("name", "=", "detached here")], detail=True))
    assert row.is_detached is True
    ray.kill(kept)


def test_an_actor_that_waits_for_resources_is_pending(eventually: Eventually) -> None:
    holds = Kept.options(resources={"part": 2}).remote()
    ray.get(holds.value.remote())
    waits = Kept.options(resources={"part": 1}, name="waits").remote()
    (row,) = eventually(lambda: state.list_actors(filters=[("name", "=", "waits")]))
    assert row.state == "PENDING_CREATION"
    ray.kill(holds)
    assert ray.get(waits.value.remote(), timeout=60) == 1
    eventually(lambda: state.get_actor(waits._actor_id.hex()).state == "ALIVE")


def test_a_method_under_way_is_running(tmp_path: Path, eventually: Eventually) -> None:
    kept = Kept.remote()
    reference = kept.wait.options(name="under way").remote(tmp_path / "go")
    eventually(lambda: state.list_tasks(filters=[("name", "=", "under way"), ("state", "=", "RUNNING")]))
    (tmp_path / "go").write_text("")
    ray.get(reference)
    eventually(lambda: state.list_tasks(filters=[("name", "=", "under way"), ("state", "=", "FINISHED")]))


def test_tasks_are_counted_by_name_and_state(eventually: Eventually) -> None:
    @ray.remote(num_cpus=0)
    def counted_here() -> None: ...

    ray.get([counted_here.remote() for _ in range(3)])

    def counts() -> Any:
        summary = state.summarize_tasks()["cluster"]["summary"]
        return next((one for name, one in summary.items() if name.endswith("counted_here")), None)

    assert (
        eventually(lambda: (found := counts()) and found["state_counts"].get("FINISHED") == 3 and found)["type"]
        == "NORMAL_TASK"
    )


def test_actors_are_counted_by_class_and_state(eventually: Eventually) -> None:
    @ray.remote(num_cpus=0)
    class CountedHere:
        def value(self) -> int:
            return 1

    actors = [CountedHere.remote() for _ in range(2)]
    ray.get([actor.value.remote() for actor in actors])

    def counts() -> Any:
        summary = state.summarize_actors()["cluster"]["summary"]
        return next((one for name, one in summary.items() if name.endswith("CountedHere")), None)

    assert eventually(lambda: (found := counts()) and found["state_counts"].get("ALIVE") == 2 and found)


def test_objects_are_counted_with_their_size(eventually: Eventually) -> None:
    kept = ray.put(np.zeros(200_000))
    summary = eventually(lambda: (found := state.summarize_objects()["cluster"]) and found["total_objects"] >= 1 and found)
    assert summary["total_size_mb"] > 0
    del kept


def test_an_object_is_found_by_its_identifier(eventually: Eventually) -> None:
    kept = ray.put(np.zeros(200_000))
    rows = eventually(lambda: state.get_objects(kept.hex()))
    assert any(row.pid == os.getpid() and row.object_size >= 1_600_000 for row in rows)


def test_a_group_is_listed_with_its_name_and_state(eventually: Eventually) -> None:
    group = placement_group([{"CPU": 1}], name="listed group")
    group.wait(30)
    (row,) = eventually(lambda: state.list_placement_groups(filters=[("name", "=", "listed group")]))
    assert row.state == "CREATED"
    assert state.get_placement_group(group.id.hex()).name == "listed group"
    remove_placement_group(group)
    eventually(lambda: state.get_placement_group(group.id.hex()).state == "REMOVED")


def test_the_node_is_listed_with_its_resources() -> None:
    (row,) = state.list_nodes(filters=[("state", "=", "ALIVE")], detail=True)
    assert row.node_id == ray.get_runtime_context().get_node_id()
    assert row.is_head_node is True
    assert row.resources_total["CPU"] == 2.0
    assert state.get_node(row.node_id).node_ip == row.node_ip


def test_the_driver_is_among_the_jobs() -> None:
    jobs = state.list_jobs(detail=True)
    (own,) = [job for job in jobs if job.job_id == ray.get_runtime_context().get_job_id()]
    assert (own.type, own.status) == ("DRIVER", "RUNNING")


def test_the_worker_of_an_actor_is_listed(eventually: Eventually) -> None:
    @ray.remote(num_cpus=0)
    class Own:
        def ids(self) -> tuple[str, int]:
            return ray.get_runtime_context().get_worker_id(), os.getpid()

    own = Own.remote()
    identifier, pid = ray.get(own.ids.remote())
    (row,) = eventually(lambda: state.list_workers(filters=[("worker_id", "=", identifier)], detail=True))
    assert (row.pid, row.is_alive, row.worker_type) == (pid, True, "WORKER")


def test_what_is_not_there_is_none() -> None:
    assert state.get_actor("ff" * 16) is None
    assert state.get_node("ff" * 28) is None


def test_the_output_of_an_actor_is_read_by_its_identifier(eventually: Eventually) -> None:
    @ray.remote(num_cpus=0)
    class Prints:
        def speak(self) -> None:
            print("a line of this actor")

    prints = Prints.remote()
    ray.get(prints.speak.remote())
    eventually(lambda: "a line of this actor" in "".join(state.get_log(actor_id=prints._actor_id.hex())))


def test_a_file_of_the_session_is_read_by_its_name(eventually: Eventually) -> None:
    @ray.remote
    def prints() -> None:
        print("a line of this task")

    ray.get(prints.remote())
    node = ray.get_runtime_context().get_node_id()

    def found() -> list[str]:
        files = [name for names in state.list_logs(node_id=node, glob_filter="worker*.out").values() for name in names]
        return [name for name in files if "a line of this task" in "".join(state.get_log(filename=name, node_id=node))]

    (name,) = eventually(found)
    assert name.startswith("worker")
