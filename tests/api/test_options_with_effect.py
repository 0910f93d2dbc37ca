"""Options of Ray's inner functions and of `Cluster`, each of which does what it says, or is refused."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import oxiray
import pytest
from oxiray import _session, _without_effect
from oxiray._private import internal_api, utils
from oxiray._raylet import ClusterID, GcsClient, GcsErrorSubscriber, node_ip_address_from_perspective
from oxiray.cluster_utils import AutoscalingCluster, Cluster
from oxiray.exceptions import OufOfBandObjectRefSerializationException, RpcError
from oxiray.util import iter as iterators
from watching import stopped

ELSEWHERE = "192.0.2.1:6379"


@pytest.fixture
def program() -> Iterator[None]:
    oxiray.shutdown()
    oxiray.init(num_cpus=1, log_to_driver=False)
    yield
    oxiray.shutdown()


@pytest.fixture
def two_nodes() -> Iterator[Cluster]:
    oxiray.shutdown()
    head = {"num_cpus": 1, "include_dashboard": True, "_system_config": {"allow_out_of_band_object_ref_serialization": False}}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=1)
    oxiray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    oxiray.shutdown()
    cluster.shutdown()


@pytest.mark.usefixtures("program")
def test_clients_ask_the_cluster_that_they_name() -> None:
    here = oxiray.get_runtime_context().gcs_address
    node = oxiray._private.worker.global_worker.node
    for client in (GcsClient(here), GcsClient(cluster_id=node.cluster_id), GcsClient(here, ClusterID.nil())):
        assert client.internal_kv_get(b"nobody") is None
    with pytest.raises(ValueError, match=ELSEWHERE):
        GcsClient(ELSEWHERE).internal_kv_get(b"nobody")
    with pytest.raises(ValueError, match="another cluster's"):
        GcsClient(cluster_id=ClusterID.from_random()).get_all_node_info()
    with pytest.raises(ValueError, match=ELSEWHERE):
        GcsErrorSubscriber(ELSEWHERE).subscribe()
    for ask in (internal_api.get_state_from_address, internal_api.memory_summary):
        with pytest.raises(ValueError, match=ELSEWHERE):
            ask(ELSEWHERE)


@pytest.mark.usefixtures("program")
def test_a_client_waits_as_long_as_it_says() -> None:
    client = GcsClient()
    assert client.internal_kv_put(b"key", b"value", timeout=60) == 1
    pid = _session._daemon_pid
    assert pid is not None
    with stopped(pid):
        with pytest.raises(RpcError, match="0.2 s") as caught:
            client.internal_kv_get(b"key", timeout=0.2)
        assert caught.value.rpc_code == 4
    assert client.internal_kv_get(b"key", timeout=60) == b"value"


@pytest.mark.usefixtures("program")
def test_memory_is_told_by_node_and_by_place_in_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [oxiray.put(numpy.ones(200_000)) for _ in range(2)]
    address = oxiray.nodes()[0]["NodeManagerAddress"]
    lines = internal_api.memory_summary(num_entries=1).splitlines()
    assert f"2 on {address}" in lines and sum(line.startswith(reference.hex()) for line in lines for reference in kept) == 1
    assert "... and 1 more" in lines
    assert "RAY_record_ref_creation_sites=1" in internal_api.memory_summary(group_by="STACK_TRACE")
    oxiray.shutdown()
    oxiray.init(num_cpus=1, _system_config={"record_ref_creation_sites": True})
    kept = [oxiray.put(numpy.ones(200_000))]
    assert f"1 made at (put object) | {__file__}" in internal_api.memory_summary(group_by="STACK_TRACE")
    # Lines are wrapped for terminals only.
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    assert max(map(len, internal_api.memory_summary().splitlines())) <= 56
    assert max(map(len, internal_api.memory_summary(line_wrap=False).splitlines())) > 56
    assert len(kept) == 1
    internal_api.free(kept, local_only=True)
    with pytest.raises(oxiray.exceptions.ObjectFreedError):
        oxiray.get(kept[0])


def test_a_cluster_has_the_switches_and_the_dashboard_that_it_was_given(two_nodes: Cluster) -> None:
    reference = oxiray.put(1)

    @oxiray.remote
    def travels(box: Any) -> str:
        try:
            pickle.dumps(box[0])
        except OufOfBandObjectRefSerializationException:
            return "refused"
        return "travels"

    assert oxiray.get(travels.remote([reference])) == "refused"
    with pytest.raises(OufOfBandObjectRefSerializationException):
        pickle.dumps(reference)
    assert _session._context is not None and _session._context.dashboard_url
    with pytest.raises(NotImplementedError, match="leave it out"):
        internal_api.free([reference], local_only=True)
    # A cluster that this process did not start is asked for its switches by nobody.
    oxiray.shutdown()
    oxiray.init("local", num_cpus=1)
    assert pickle.loads(pickle.dumps(oxiray.put(1))) is not None


def test_options_of_clusters_that_mean_nothing_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(_without_effect, "_told", set())
    monkeypatch.setattr(_without_effect.logger, "warning", lambda text, *parts: told.append(text % parts))
    cluster = Cluster(initialize_head=True, head_node_args={"gcs_server_port": 7000, "redis_password": "x", "dashboard_host": "127.0.0.1"})
    cluster.shutdown()
    assert [line.split(" has no effect")[0] for line in told] == ["add_node(gcs_server_port=)", "add_node(redis_password=)"]


def test_a_limit_of_all_nodes_is_one_of_each_type_or_refused() -> None:
    kind = {"resources": {"CPU": 1}, "max_workers": 5, "min_workers": 3}
    (group,) = AutoscalingCluster({"CPU": 0}, {"one": kind}, max_workers=2)._groups
    assert (group["min"], group["max"]) == (2, 2)
    assert len(AutoscalingCluster({"CPU": 0}, {"one": kind, "other": kind}, max_workers=10)._groups) == 2
    with pytest.raises(ValueError, match="may have 10 together"):
        AutoscalingCluster({"CPU": 0}, {"one": kind, "other": kind}, max_workers=9)


def test_addresses_are_seen_from_where_it_is_said() -> None:
    assert node_ip_address_from_perspective("127.0.0.1:80") == "127.0.0.1"
    assert node_ip_address_from_perspective("[::1]:80") in ("::1", "127.0.0.1")
    with pytest.raises(ValueError, match="host:port"):
        node_ip_address_from_perspective("127.0.0.1")


@pytest.mark.parametrize(
    ("files", "whole", "part"),
    [
        ({"cpu.max": "50000 100000\n"}, 1, 0.5),
        ({"cpu.cfs_quota_us": "25000\n", "cpu.cfs_period_us": "100000\n"}, 1, 0.25),
        ({"cpu.max": "max 100000\n"}, None, None),
        ({"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, None, None),
    ],
)
def test_quotas_of_control_groups_count(
    files: dict[str, str], whole: float | None, part: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(utils, "_control_groups", lambda controller: [tmp_path])
    machine = len(os.sched_getaffinity(0))
    assert utils.get_num_cpus() == (machine if whole is None else whole)
    assert utils.get_num_cpus(truncate=False) == (machine if part is None else part)


def test_limits_of_memory_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utils, "_control_groups", lambda controller: [tmp_path])
    whole = utils.get_system_memory()
    (tmp_path / "memory.max").write_text("max\n")
    assert utils.get_system_memory() == whole
    (tmp_path / "memory.max").write_text("1048576\n")
    assert utils.get_system_memory() == 1 << 20


def test_a_test_knows_that_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    monkeypatch.delenv("BUILDKITE", raising=False)
    assert not utils.is_in_test()
    monkeypatch.setenv("BUILDKITE", "true")
    assert utils.is_in_test()


def test_whether_lost_objects_are_made_again_is_told() -> None:
    from oxiray._private.worker import global_worker

    for config, is_off in ({}, False), ({"lineage_pinning_enabled": False}, True):
        oxiray.shutdown()
        oxiray.init(num_cpus=1, log_to_driver=False, _system_config=config)
        assert global_worker.core_worker.get_disable_job_level_lineage_reconstruction() is is_off
    oxiray.shutdown()


def test_iterators_take_no_limit_of_time() -> None:
    with pytest.raises(NotImplementedError, match="timeout=1"):
        iterators.LocalIterator(lambda: [1], iterators.SharedMetrics(), timeout=1)
