"""What the tests of Ray's libraries take from Ray's own helpers for tests: killers, subscribers, and what is refused."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import oxiray
import oxiray.util
import pytest
from homes import free_port
from oxiray._private import authentication_test_utils, test_utils
from oxiray._private.runtime_env import virtualenv_utils
from oxiray.cluster_utils import Cluster
from watching import wait_until

#: After how many deaths of its workers a driver is told of a task that is tried again.
DEATHS = 4


@pytest.fixture
def start() -> Iterator[Callable[..., Any]]:
    yield lambda **options: oxiray.init("local", num_cpus=2, **options)
    oxiray.shutdown()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    yield made
    oxiray.shutdown()
    made.shutdown()


def alive() -> set[str]:
    return {node["NodeID"] for node in oxiray.nodes() if node["Alive"]}


@oxiray.remote
def say(*lines: str) -> int:
    print("\n".join(lines), flush=True)
    return os.getpid()


def test_a_killer_kills_nodes_and_tells_which(cluster: Cluster) -> None:
    members = {cluster.add_node(num_cpus=1).node_id for _ in range(3)}
    oxiray.init(address=cluster.address, log_to_driver=False)
    killer = test_utils.get_and_run_resource_killer(test_utils.RayletKiller, 0.1, max_to_kill=1)
    killed = oxiray.get(killer.get_killed_nodes.remote(), timeout=60)
    assert len(killed) == 1
    (gone, _, _) = killed.pop()
    assert gone in members and alive() == {cluster.head_node.node_id, *members} - {gone}  # type: ignore[union-attr]


def test_a_killer_leaves_its_own_node_and_the_last_other_one(cluster: Cluster) -> None:
    members = {cluster.add_node(num_cpus=1).node_id for _ in range(2)}
    oxiray.init(address=cluster.address, log_to_driver=False)
    killer = test_utils.get_and_run_resource_killer(test_utils.RayletKiller, 0.05, max_to_kill=5)
    wait_until(lambda: len(alive()) == 2)
    # It would have killed again many times by now.
    with pytest.raises(oxiray.exceptions.GetTimeoutError):
        oxiray.get(killer.get_killed_nodes.remote(), timeout=2)
    assert len(alive() & members) == 1 and cluster.head_node is not None and cluster.head_node.node_id in alive()
    assert oxiray.get(killer.stop_run.remote()) and not oxiray.get(killer.stop_run.remote())
    assert len(oxiray.get(killer.get_killed_nodes.remote(), timeout=30)) == 1


def test_a_killer_kills_only_what_its_filter_lets_it(cluster: Cluster) -> None:
    members = [cluster.add_node(num_cpus=1, resources={"this": 1} if number == 2 else None).node_id for number in range(3)]
    oxiray.init(address=cluster.address, log_to_driver=False)
    asked = test_utils.get_and_run_resource_killer(
        test_utils.RayletKiller, 0.1, max_to_kill=1, no_start=True, kill_filter_fn=lambda: lambda node: "this" in node["Resources"]
    )
    assert len(alive()) == 4
    asked.run.remote()
    assert [one[0] for one in oxiray.get(asked.get_killed_nodes.remote(), timeout=60)] == [members[2]]


def test_a_killer_of_ones_own_says_what_there_is_to_kill(start: Callable[..., Any], tmp_path: Path) -> None:
    class Remover(test_utils.ResourceKillerActor):
        kill_immediately_after_found = True

        async def _find_resources_to_kill(self) -> list[Any]:
            return [(str(file),) for file in sorted(tmp_path.iterdir())]

        async def _kill_resource(self, *resource: Any) -> bool:
            os.unlink(resource[0])
            return True

    (tmp_path / "a").touch()
    start()
    killer = test_utils.get_and_run_resource_killer(oxiray.remote(Remover), 0.01, max_to_kill=1)
    assert oxiray.get(killer.get_killed_nodes.remote(), timeout=30) == {(str(tmp_path / "a"),)}


def test_a_killer_needs_a_cluster() -> None:
    with pytest.raises(RuntimeError, match=r"call ray\.init"):
        test_utils.get_and_run_resource_killer(test_utils.RayletKiller, 1)


def test_the_lines_of_workers_are_read_as_they_come(start: Callable[..., Any]) -> None:
    start()
    subscriber = test_utils.init_log_pubsub()
    pid = oxiray.get(say.remote("one of two", "two of two"))
    found = test_utils.get_log_data(subscriber, num=1, timeout=30, matcher=lambda line: line == "two of two")
    assert [(piece["pid"], piece["is_err"], piece["name"]) for piece in found] == [(pid, False, "say")]
    assert found[0]["job"] == oxiray.get_runtime_context().get_job_id()
    assert found[0]["lines"][-1] == "two of two"
    assert test_utils.get_log_message(subscriber, timeout=0.3, matcher=lambda line: line == "one of two") == []
    other = oxiray.get(say.remote("three"))
    assert test_utils.get_log_sources(subscriber, num=1, timeout=30) == {other}
    subscriber.close()
    oxiray.get(say.remote("after"))
    assert test_utils.get_log_batch(subscriber, 1, timeout=0.5) == []


def test_who_waits_for_lines_goes_on_when_the_subscriber_is_closed(start: Callable[..., Any]) -> None:
    start()
    subscriber = test_utils.init_log_pubsub()
    waiting = threading.Thread(target=subscriber.poll, daemon=True)
    waiting.start()
    subscriber.close()
    waiting.join(30)
    assert not waiting.is_alive()


def test_a_program_that_is_told_no_lines_cannot_subscribe(start: Callable[..., Any]) -> None:
    with pytest.raises(RuntimeError, match=r"call ray\.init"):
        test_utils.init_log_pubsub()
    start(log_to_driver=False)
    with pytest.raises(RuntimeError, match="without log_to_driver=False"):
        test_utils.init_log_pubsub()


def test_notices_are_read_as_they_come(start: Callable[..., Any], tmp_path: Path) -> None:
    @oxiray.remote(max_retries=20)
    def dies_often() -> int:
        (tmp_path / str(os.getpid())).touch()
        if len(list(tmp_path.iterdir())) <= DEATHS:
            os._exit(1)
        return 5

    start()
    subscriber = test_utils.init_error_pubsub()
    assert oxiray.get(dies_often.remote(), timeout=60) == 5
    (notice,) = test_utils.get_error_message(subscriber, num=1, timeout=30)
    assert "dies_often" in notice["error_message"] and notice["type"] == "notice"
    assert notice["job_id"].hex() == oxiray.get_runtime_context().get_job_id()
    with pytest.raises(ValueError, match="look at error_message"):
        test_utils.get_error_message(subscriber, error_type="worker_died")
    subscriber.close()


def test_what_asks_for_redis_is_told_that_none_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TEST_EXTERNAL_REDIS", "TEST_GCS_ROCKSDB", "TEST_EXTERNAL_REDIS_REPLICAS"):
        monkeypatch.delenv(name, raising=False)
    assert not test_utils.external_redis_test_enabled() and not test_utils.persistent_gcs_test_enabled()
    assert (test_utils.redis_replicas(), test_utils.redis_sentinel_replicas()) == (1, 2)
    monkeypatch.setenv("TEST_EXTERNAL_REDIS", "1")
    monkeypatch.setenv("TEST_EXTERNAL_REDIS_REPLICAS", "3")
    assert test_utils.external_redis_test_enabled() and test_utils.persistent_gcs_test_enabled()
    assert test_utils.redis_replicas() == 3
    with pytest.raises(NotImplementedError, match=r"start_redis_instance\(\).*unset TEST_EXTERNAL_REDIS"):
        test_utils.start_redis_instance("/tmp", 6379, password="x")
    with pytest.raises(NotImplementedError, match="start_redis_sentinel_instance"):
        test_utils.start_redis_sentinel_instance("/tmp", 6379, 6380)
    with pytest.raises(NotImplementedError, match="get_redis_cli"):
        test_utils.get_redis_cli(6379, False)


def test_what_asks_for_rays_switch_of_tls_is_told_that_it_switches_nothing() -> None:
    before = dict(os.environ)
    with pytest.raises(NotImplementedError, match=r"setup_tls\(\).*always speak TLS"):
        test_utils.setup_tls()
    with pytest.raises(NotImplementedError, match="teardown_tls"):
        test_utils.teardown_tls("key", "certificate", "folder")
    assert dict(os.environ) == before


def test_tokens_are_set_and_put_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from oxiray import _job_http

    monkeypatch.setenv("RAY_AUTH_TOKEN", "before-before-before")
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    with authentication_test_utils.authentication_env_guard():
        authentication_test_utils.set_auth_token_path("of-a-file-of-a-file", tmp_path / "deep" / "token")
        assert _job_http.headers("http://127.0.0.1:1", None, None)["Authorization"] == "Bearer of-a-file-of-a-file"
        assert (tmp_path / "deep" / "token").stat().st_mode & 0o777 == 0o600
        authentication_test_utils.set_env_auth_token("of-the-environment-")
        authentication_test_utils.reset_auth_token_state()
        assert _job_http.headers("http://127.0.0.1:1", None, None)["Authorization"] == "Bearer of-the-environment-"
        assert "RAY_AUTH_TOKEN_PATH" not in os.environ
    assert os.environ["RAY_AUTH_TOKEN"] == "before-before-before" and "RAY_AUTH_TOKEN_PATH" not in os.environ
    with pytest.raises(AttributeError):
        authentication_test_utils.set_auth_mode  # noqa: B018


def test_requests_bring_the_token_unless_the_caller_does(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, str, dict[str, str]]] = []
    stand_in = ModuleType("requests")
    stand_in.request = lambda method, url, headers, timeout: sent.append((method, url, headers))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "requests", stand_in)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a-token-a-token-a-token")
    test_utils.request_with_auth_token("GET", "http://127.0.0.1:1/x", timeout=1)
    test_utils.request_with_auth_token("GET", "http://127.0.0.1:1/x", headers={"authorization": "own"}, timeout=1)
    assert [headers.get("Authorization") for _, _, headers in sent] == ["Bearer a-token-a-token-a-token", None]
    assert sent[0][:2] == ("GET", "http://127.0.0.1:1/x") and sent[1][2]["authorization"] == "own"


def test_servers_are_waited_for_and_results_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        assert test_utils.wait_until_server_available(f"127.0.0.1:{port}")
    assert not test_utils.wait_until_server_available(f"127.0.0.1:{port}", timeout_ms=200)
    with pytest.raises(ValueError, match="host:port"):
        test_utils.wait_until_server_available("nothing")
    assert test_utils.format_web_url("localhost:8265") == test_utils.format_web_url("http://127.0.0.1:8265") == "http://127.0.0.1:8265"
    monkeypatch.setenv("TEST_OUTPUT_JSON", str(tmp_path / "results.json"))
    test_utils.safe_write_to_results_json({"seconds": 1.5})
    assert json.loads((tmp_path / "results.json").read_text()) == {"seconds": 1.5} and len(list(tmp_path.iterdir())) == 1


def test_an_interpreter_knows_whether_it_is_of_a_virtual_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    assert not virtualenv_utils.is_in_virtualenv()
    monkeypatch.setattr(sys, "base_prefix", "/elsewhere")
    assert virtualenv_utils.is_in_virtualenv()


def test_an_actor_tells_its_node(start: Callable[..., Any]) -> None:
    @oxiray.remote(num_cpus=0)
    class There:
        pass

    start()
    actor = There.remote()
    assert test_utils.get_actor_node_id(actor) == oxiray.get_runtime_context().get_node_id()


def test_objects_in_memory_are_counted_on_all_nodes(cluster: Cluster) -> None:
    @oxiray.remote(num_cpus=0, resources={"far": 1})
    class Keeper:
        def keep(self) -> Any:
            return [oxiray.put(b"x" * 8_000_000)]

    cluster.add_node(num_cpus=1, resources={"far": 1})
    oxiray.init(address=cluster.address, log_to_driver=False)
    before = test_utils.object_memory_usage()
    keeper = Keeper.remote()
    held = [oxiray.put(b"x" * 8_000_000), oxiray.get(keeper.keep.remote())]
    wait_until(lambda: test_utils.object_memory_usage() >= before + 16_000_000)
    held.clear()
    wait_until(lambda: test_utils.object_memory_usage() < before + 8_000_000)


def test_placement_groups_are_removed_and_what_they_held_is_free(start: Callable[..., Any]) -> None:
    start()
    groups = [oxiray.util.placement_group([{"CPU": 1}]) for _ in range(2)]
    oxiray.get([group.ready() for group in groups])
    assert not test_utils.no_resource_leaks_excluding_node_resources()
    assert oxiray.available_resources().get("CPU", 0) == 0
    test_utils.placement_group_assert_no_leak(groups)
    assert test_utils.no_resource_leaks_excluding_node_resources() and all(map(test_utils.is_placement_group_removed, groups))


def test_what_is_held_by_something_else_is_found_to_leak(start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    @oxiray.remote(num_cpus=1)
    class Holder:
        pass

    start()
    holder = Holder.remote()
    oxiray.get(holder.__ray_ready__.remote())
    wait = test_utils.wait_for_condition
    monkeypatch.setattr(test_utils, "wait_for_condition", lambda holds: wait(holds, timeout=0.5))
    with pytest.raises(RuntimeError):
        test_utils.placement_group_assert_no_leak([])


def test_the_fixtures_of_rays_tests_import(tmp_path: Path) -> None:
    """What `ray/tests/conftest.py` and those of the libraries import of Ray's core, at a program's beginning."""
    program = tmp_path / "program.py"
    program.write_text("""
import ray
import ray._private.ray_constants as ray_constants
import ray.util.state
from ray._common.network_utils import find_free_port
from ray._common.test_utils import SignalActor, wait_for_condition
from ray._common.usage import usage_lib
from ray._common.utils import reset_ray_address
from ray._private.authentication_test_utils import reset_auth_token_state
from ray._private.conftest_utils import set_override_dashboard_url
from ray._private.internal_api import get_memory_info_reply, get_state_from_address
from ray._private.runtime_env import virtualenv_utils
from ray._private.runtime_env.plugin_schema_manager import RuntimeEnvPluginSchemaManager
from ray._private.test_utils import (
    RayletKiller, external_redis_test_enabled, find_free_port, get_and_run_resource_killer, get_redis_cli, init_error_pubsub,
    init_log_pubsub, persistent_gcs_test_enabled, redis_replicas, redis_sentinel_replicas, reset_autoscaler_v2_enabled_cache,
    rocksdb_gcs_test_enabled, setup_tls, start_redis_instance, start_redis_sentinel_instance, teardown_tls,
)
from ray.cluster_utils import AutoscalingCluster, Cluster, cluster_not_supported
from ray.util.debug import reset_log_once

ray_constants.NUM_REDIS_GET_RETRIES = 2
reset_autoscaler_v2_enabled_cache()
reset_ray_address()
assert not cluster_not_supported
""")
    subprocess.run([sys.executable, str(program)], check=True, timeout=60)
