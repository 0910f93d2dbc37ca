"""`JobConfig`, named actors, serializers, and what libraries ask of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import ray
import ray._private.services
import ray._private.state
import ray._private.utils
from ray._private.worker import global_worker
from ray.job_config import JobConfig


class Locked:
    def __init__(self, value: int) -> None:
        self.value = value
        self.lock = threading.Lock()


def lock_again(value: int) -> Locked:
    return Locked(value)


@ray.remote
def value_of(locked: Locked) -> int:
    return locked.value


@ray.remote
class Named:
    def name(self) -> str:
        return ray.get_runtime_context().get_actor_name() or ""


def test_a_job_config_says_what_init_does_not(cluster: Callable[..., Any]) -> None:
    config = JobConfig(
        runtime_env={"env_vars": {"OF_JOB": "1"}}, ray_namespace="shelf", metadata={"a": "b"},
        default_actor_lifetime="detached",
    )
    config.set_metadata("c", "d")
    assert config.metadata == {"a": "b", "c": "d"}
    cluster(job_config=config)
    assert ray.get_runtime_context().namespace == "shelf"
    assert ray.get_runtime_context().runtime_env["env_vars"] == {"OF_JOB": "1"}
    Named.options(name="kept").remote()
    assert ray.get(ray.get_actor("kept").name.remote()) == "kept"
    Named.options(name="let go", lifetime="non_detached").remote()
    # The only handle of an actor that is not detached is gone: it ends, and its name is free.
    while "let go" in ray.util.list_named_actors():
        pass
    assert ray.util.list_named_actors() == ["kept"]


def test_what_a_job_config_refuses() -> None:
    with pytest.raises(ValueError, match="no Java"):
        JobConfig(jvm_options=["-Xmx1g"])
    with pytest.raises(TypeError, match="code_search_path"):
        JobConfig(code_search_path="/a:/b")
    with pytest.raises(ValueError, match="eternal"):
        JobConfig(default_actor_lifetime="eternal")
    with pytest.raises(TypeError):
        JobConfig().ensure_logging_config(5)  # type: ignore[arg-type]
    config = JobConfig.from_json({"ray_namespace": "n", "metadata": {"x": "y"}})
    assert (config.ray_namespace, config.metadata) == ("n", {"x": "y"})
    config.ensure_logging_config({"encoding": "JSON"})
    config.ensure_logging_config({"encoding": "TEXT"})
    assert config.py_logging_config == ray.LoggingConfig(encoding="JSON")


def test_named_actors_are_listed(cluster: Callable[..., Any]) -> None:
    cluster(namespace="here")
    assert ray.util.list_named_actors() == []
    kept = [Named.options(name=name, namespace=space).remote() for name, space in (("a", None), ("b", None), ("c", "there"))]
    ray.get([actor.name.remote() for actor in kept])
    assert sorted(ray.util.list_named_actors()) == ["a", "b"]
    everywhere = {(found["namespace"], found["name"]) for found in ray.util.list_named_actors(all_namespaces=True)}
    assert everywhere == {("here", "a"), ("here", "b"), ("there", "c")}


def test_serializers_of_a_class(cluster: Callable[..., Any]) -> None:
    cluster()
    with pytest.raises(TypeError, match="lock"):
        ray.put(Locked(1))
    ray.util.register_serializer(Locked, serializer=lambda locked: locked.value, deserializer=lock_again)
    try:
        assert ray.get(value_of.remote(Locked(5))) == 5
        assert ray.get(ray.put([Locked(6)]))[0].value == 6
    finally:
        ray.util.deregister_serializer(Locked)
    ray.util.deregister_serializer(Locked)
    with pytest.raises(TypeError, match="lock"):
        ray.put(Locked(1))
    with pytest.raises(TypeError, match="takes a class"):
        ray.util.register_serializer("x", serializer=str, deserializer=str)  # type: ignore[arg-type]


def test_what_libraries_ask_of_this_process(cluster: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert not global_worker.connected
    assert global_worker.mode is None
    assert global_worker.node is None
    with pytest.raises(ray.exceptions.RaySystemError, match="init"):
        global_worker.check_connected()
    context = cluster(num_cpus=3)
    global_worker.check_connected()
    assert (global_worker.connected, global_worker.mode) == (True, ray.SCRIPT_MODE)
    assert global_worker.current_job_id.hex() == ray.get_runtime_context().get_job_id()
    assert global_worker.node.address_info == context.address_info
    assert global_worker.node.node_ip_address == ray._private.services.get_node_ip_address()

    @ray.remote(num_cpus=2)
    def as_a_task() -> tuple[Any, str, dict[str, dict[str, float]]]:
        task = global_worker.current_task_id.hex()
        return global_worker.mode, task, ray._private.state.available_resources_per_node()

    mode, task, available = ray.get(as_a_task.remote())
    assert mode == ray.WORKER_MODE
    assert len(task) == 48
    node = ray.nodes()[0]["NodeID"]
    assert available[node]["CPU"] == 1
    assert ray._private.state.total_resources_per_node()[node]["CPU"] == 3
    assert ray._private.state.current_node_id() in ray.cluster_resources()
    assert ray._private.utils.hex_to_binary(ray._private.utils.binary_to_hex(b"\x01\xff")) == b"\x01\xff"
    monkeypatch.setenv("RAY_CLOUD_INSTANCE_ID", "i-7")
    assert ray.util.get_node_instance_id() == "i-7"


def test_the_labels_of_the_machine(cluster: Callable[..., Any]) -> None:
    cluster(labels={"zone": "a"})

    @ray.remote
    def labels() -> dict[str, str]:
        return ray.get_runtime_context().get_node_labels()

    expected = {"ray.io/node-id": ray.nodes()[0]["NodeID"], "zone": "a"}
    assert ray.get(labels.remote()) == ray.get_runtime_context().get_node_labels() == expected
