"""Runtime context and facts of the cluster: what a program learns of where it runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, NodeLabelSchedulingStrategy

pytestmark = pytest.mark.usefixtures("session")


def test_the_driver_has_a_job_a_node_and_a_worker() -> None:
    context = ray.get_runtime_context()
    assert len(context.get_job_id()) == 8
    assert len(context.get_node_id()) == len(context.get_worker_id()) == 56


def test_the_driver_has_no_actor_and_no_task_name() -> None:
    context = ray.get_runtime_context()
    assert context.get_actor_id() is None
    assert context.get_actor_name() is None


def test_the_driver_is_no_part_of_a_group() -> None:
    assert ray.get_runtime_context().get_placement_group_id() is None


def test_the_namespace_is_text() -> None:
    assert isinstance(ray.get_runtime_context().namespace, str)


def test_the_address_of_the_cluster_has_a_port() -> None:
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    assert host and int(port) > 0


def test_the_runtime_environment_is_a_dictionary() -> None:
    assert dict(ray.get_runtime_context().runtime_env) == {}
    assert ray.get_runtime_context().get_runtime_env_string() == "{}"


def test_a_task_sees_its_runtime_environment() -> None:
    @ray.remote(runtime_env={"env_vars": {"A": "1"}})
    def seen() -> dict:
        return dict(ray.get_runtime_context().runtime_env)

    assert ray.get(seen.remote())["env_vars"] == {"A": "1"}


def test_the_name_of_a_task_is_its_functions() -> None:
    @ray.remote
    def named() -> str:
        return ray.get_runtime_context().get_task_name()

    assert ray.get(named.remote()).endswith("named")
    assert ray.get(named.options(name="chosen").remote()) == "chosen"


def test_the_name_of_a_call_is_its_class_and_method() -> None:
    @ray.remote
    class Named:
        def method(self) -> str:
            return ray.get_runtime_context().get_task_name()

    assert ray.get(Named.remote().method.remote()) == "Named.method"


def test_assigned_resources_are_what_the_task_holds() -> None:
    @ray.remote(num_cpus=1.5)
    def held() -> dict:
        return ray.get_runtime_context().get_assigned_resources()

    assert ray.get(held.remote()) == {"CPU": 1.5}


def test_accelerator_ids_are_listed_by_kind() -> None:
    @ray.remote(num_gpus=2)
    def held() -> dict:
        return ray.get_runtime_context().get_accelerator_ids()

    assert sorted(ray.get(held.remote())["GPU"]) == ["0", "1"]


def test_a_driver_has_no_gpus() -> None:
    assert ray.get_gpu_ids() == []


def test_there_is_one_node_and_it_is_alive() -> None:
    (node,) = ray.nodes()
    assert node["Alive"] is True and node["alive"] is True
    assert node["NodeID"] == ray.get_runtime_context().get_node_id()
    assert node["NodeManagerAddress"] and node["NodeManagerHostname"]


def test_a_node_has_its_resources_and_labels() -> None:
    (node,) = ray.nodes()
    assert node["Resources"]["CPU"] == 4.0 and node["Resources"]["GPU"] == 2.0
    assert node["Labels"]["ray.io/node-id"] == node["NodeID"]


def test_the_resources_of_the_cluster_are_those_of_its_nodes() -> None:
    total = ray.cluster_resources()
    assert (total["CPU"], total["GPU"], total["part"]) == (4.0, 2.0, 8.0)
    assert total["memory"] > 0 and total["object_store_memory"] > 0


def test_what_is_free_is_at_most_what_there_is(eventually: Callable[..., Any]) -> None:
    eventually(lambda: ray.available_resources().get("CPU") == 4.0)


def test_what_is_free_shrinks_while_an_actor_holds_it(eventually: Callable[..., Any]) -> None:
    @ray.remote(resources={"part": 3})
    class Holder:
        def f(self) -> None: ...

    holder = Holder.remote()
    ray.get(holder.f.remote())
    eventually(lambda: ray.available_resources().get("part") == 5.0)
    del holder
    eventually(lambda: ray.available_resources().get("part") == 8.0)


def test_the_node_has_a_resource_of_its_own() -> None:
    address = ray.util.get_node_ip_address()
    assert ray.cluster_resources()[f"node:{address}"] == 1.0


def test_a_task_runs_on_the_node_that_is_named() -> None:
    @ray.remote
    def where() -> str:
        return ray.get_runtime_context().get_node_id()

    here = ray.get_runtime_context().get_node_id()
    strategy = NodeAffinitySchedulingStrategy(node_id=here, soft=False)
    assert ray.get(where.options(scheduling_strategy=strategy).remote()) == here


def test_an_affinity_to_no_node_fails_unless_it_is_soft() -> None:
    @ray.remote
    def where() -> str:
        return ray.get_runtime_context().get_node_id()

    nowhere = "e" * 56
    hard = where.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=nowhere, soft=False)).remote()
    with pytest.raises(ray.exceptions.TaskUnschedulableError):
        ray.get(hard, timeout=30)
    soft = where.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=nowhere, soft=True)).remote()
    assert ray.get(soft, timeout=30) == ray.get_runtime_context().get_node_id()


def test_an_actor_with_an_affinity_to_no_node_is_unschedulable() -> None:
    @ray.remote
    class Somewhere:
        def f(self) -> None: ...

    actor = Somewhere.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node_id="e" * 56, soft=False)).remote()
    with pytest.raises(ray.exceptions.ActorUnschedulableError):
        ray.get(actor.f.remote(), timeout=30)


@pytest.mark.parametrize("strategy", ["DEFAULT", "SPREAD"])
def test_the_strategies_by_name(strategy: str) -> None:
    @ray.remote(scheduling_strategy=strategy)
    def one() -> int:
        return 1

    assert ray.get(one.remote()) == 1


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(ValueError):
        ray.remote(scheduling_strategy="NEAR")(lambda: 1).remote()


def test_a_label_of_the_node_selects_it() -> None:
    from ray.util.scheduling_strategies import In

    @ray.remote
    def one() -> int:
        return 1

    here = ray.get_runtime_context().get_node_id()
    strategy = NodeLabelSchedulingStrategy(hard={"ray.io/node-id": In(here)})
    assert ray.get(one.options(scheduling_strategy=strategy).remote(), timeout=30) == 1


def test_a_label_selector_selects_the_node() -> None:
    @ray.remote
    def one() -> int:
        return 1

    here = ray.get_runtime_context().get_node_id()
    assert ray.get(one.options(label_selector={"ray.io/node-id": here}).remote(), timeout=30) == 1


@pytest.mark.differs("a request that no machine can meet raises instead of waiting for ever")
def test_a_request_that_no_machine_can_meet_raises() -> None:
    @ray.remote(resources={"part": 100})
    def never() -> None: ...

    with pytest.raises(ray.exceptions.TaskUnschedulableError):
        ray.get(never.remote(), timeout=60)


def test_workers_know_the_daemon_and_the_job() -> None:
    @ray.remote
    def variables() -> tuple:
        return os.environ["RAY_RAYLET_PID"], os.environ["RAY_JOB_ID"]

    daemon, job = ray.get(variables.remote())
    assert os.path.exists(f"/proc/{daemon}") and len(job) == 8


def test_faulthandler_is_enabled_in_workers() -> None:
    @ray.remote
    def enabled() -> bool:
        import faulthandler

        return faulthandler.is_enabled()

    assert ray.get(enabled.remote())


def _title(pid: int) -> str:
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read().split("\0")[0]


@ray.remote
def title() -> str:
    return _title(os.getpid())


@ray.remote
class Titled:
    def __init__(self) -> None:
        self.at_first = _title(os.getpid())

    def titles(self) -> tuple:
        return self.at_first, _title(os.getpid()), os.getpid()


def test_the_title_of_a_worker_is_its_tasks() -> None:
    assert ray.get(title.remote()) == "ray::title"
    assert ray.get(title.options(name="chosen").remote()) == "ray::chosen"


def test_the_title_of_an_actor_is_its_class_and_method(eventually: Callable[..., Any]) -> None:
    titled = Titled.remote()
    at_first, running, pid = ray.get(titled.titles.remote())
    assert (at_first, running) == ("ray::Titled.__init__", "ray::Titled.titles")
    eventually(lambda: _title(pid) == "ray::Titled")


def test_the_title_of_a_generator_stays_until_it_ends() -> None:
    @ray.remote
    def generate() -> Any:
        yield _title(os.getpid())
        yield _title(os.getpid())

    assert ray.get(list(generate.remote())) == ["ray::generate"] * 2


def test_a_task_cannot_take_a_worker_of_another_job() -> None:
    assert ray.get_runtime_context().get_job_id() == ray.get(
        ray.remote(lambda: ray.get_runtime_context().get_job_id()).remote()
    )


def test_is_initialized_says_so() -> None:
    assert ray.is_initialized()
    assert ray.get(ray.remote(lambda: ray.is_initialized()).remote())


def test_a_second_init_raises() -> None:
    with pytest.raises(RuntimeError, match="[Mm]aybe you called"):
        ray.init()


def test_a_second_init_is_ignored_where_that_is_asked_for() -> None:
    job = ray.get_runtime_context().get_job_id()
    ray.init(ignore_reinit_error=True)
    assert ray.get_runtime_context().get_job_id() == job


def test_the_timeline_is_a_list_of_events(tmp_path: Any, eventually: Callable[..., Any]) -> None:
    ray.get(title.remote())
    eventually(lambda: any(event.get("cat", "").startswith("task") for event in ray.timeline()))
    ray.timeline(str(tmp_path / "timeline.json"))
    assert (tmp_path / "timeline.json").stat().st_size > 0
