"""`ray.util.tpu`: slices of TPUs, by machines that were recorded."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from ray.util import tpu
from ray.util.placement_group import placement_group_table
from tpus import RECORDED, cluster_of_slices
from watching import wait_until

HEAD = "TPU-v4-16-head"


@pytest.fixture
def slices(tmp_path: Path, request: pytest.FixtureRequest) -> Cluster:
    """Two slices of two hosts, which joined in no order."""
    return cluster_of_slices(tmp_path, request)


@ray.remote
def look() -> tuple[str | None, int | None, int, str | None]:
    """What a task finds of the slice that it is on, and the chips that it sees."""
    found = tpu.get_current_pod_name(), tpu.get_current_pod_worker_count(), tpu.get_num_tpu_chips_on_node()
    return *found, os.environ.get("TPU_VISIBLE_CHIPS")


def names_of(group: Any) -> list[str]:
    """The slice that each bundle of a placed group is on."""
    assert group.wait(60)
    labels = {node["NodeID"]: node["Labels"] for node in ray.nodes()}
    nodes = placement_group_table(group)["bundles_to_node_id"]
    return [labels[nodes[index]]["ray.io/tpu-slice-name"] for index in range(len(nodes))]


def free(resource: str) -> float:
    return ray.available_resources().get(resource, 0)


def test_a_slice_is_reserved_as_a_whole(slices: Cluster) -> None:
    assert tpu.get_num_tpu_slices("2x2x2", "TPU-V4") == tpu.get_num_ready_tpu_slices("2x2x2", "TPU-V4") == 2
    assert tpu.get_num_tpu_slices("2x2x4", "TPU-V4") == tpu.get_num_tpu_slices("4x4", "TPU-V6E") == 0
    of = tpu.slice_placement_group("2x2x2", "v4")
    assert (of.num_hosts, of.num_bundles, of.chips_per_host, of.num_slices) == (2, 2, 4, 1)
    assert of.placement_group is of.slice_placement_group and of.bundle_resources == {"CPU": 1, "TPU": 4}
    assert len(set(names_of(of.slice_placement_group))) == 1 and free(HEAD) == 1
    assert tpu.get_num_ready_tpu_slices("2x2x2", "TPU-V4") == 1 and tpu.get_num_tpu_slices("2x2x2", "TPU-V4") == 2
    of.release_head_pgs()
    of.release_head_pgs()
    assert of.head_placement_groups == []
    seen = ray.get(tpu.run_on_slice(look, tpu_slice=of), timeout=60)
    assert seen == [(of.bundle_label_selector[0]["ray.io/tpu-slice-name"], 2, 4, None)] * 2
    of.shutdown()
    of.shutdown()
    assert of.slice_placement_group is None
    wait_until(lambda: tpu.get_num_ready_tpu_slices("2x2x2", "TPU-V4") == 2)
    with pytest.raises(ValueError, match="already been shut down"):
        tpu.run_on_slice(look, tpu_slice=of)


def test_slices_have_a_group_each_or_one_together(slices: Cluster) -> None:
    together = tpu.SlicePlacementGroup("2x2x2", "TPU-V4", num_slices=2)
    assert names_of(together.slice_placement_group) == ["alpha", "alpha", "beta", "beta"]
    together.shutdown()
    taken = tpu.SlicePlacementGroup("2x2x2", "v4", bundle_label_selector=[{"ray.io/tpu-slice-name": "beta"}] * 2)
    assert names_of(taken.slice_placement_group) == ["beta"] * 2 and taken.head_placement_groups == []
    # All slices or none: of three that are asked for, two are held by nobody meanwhile.
    with pytest.raises(TimeoutError, match="Failed to reserve TPU head for slice with shape: v4-16 after 0.2 seconds.*3 slices"):
        tpu.SlicePlacementGroup("2x2x2", "v4", num_slices=3, head_reservation_timeout_s=0.2)
    wait_until(lambda: free(HEAD) == 2)
    taken.shutdown()
    each = tpu.SlicePlacementGroup("2x2x2", "v4", {"TPU": 2, "CPU": 0.5}, name="run", num_slices=2, pg_per_slice=True)
    assert [names_of(group) for group in each.slice_placement_groups] == [["alpha"] * 4, ["beta"] * 4]
    assert ray.util.get_placement_group("run_slice_1") == each.slice_placement_groups[1]
    each.release_head_pgs(0)
    assert len(each.head_placement_groups) == 1 and free(HEAD) == 0
    each.release_head_pgs(1)
    wait_until(lambda: each.head_placement_groups == [] and free(HEAD) == 2)
    with pytest.raises(ValueError, match="Invalid slice_index: 2. Slices have indexes from 0 to 1"):
        each.release_head_pgs(2)
    seen = ray.get(tpu.run_on_slice(look, tpu_slice=each, slice_index=1), timeout=60)
    assert [name for name, *_ in seen] == ["beta"] * 4
    each.shutdown()


def test_one_slice_that_is_named_and_one_that_is_not(slices: Cluster) -> None:
    selectors = [{"ray.io/tpu-slice-name": "alpha"}, {}, {}, {}]
    of = tpu.SlicePlacementGroup("2x2x2", "v4", num_slices=2, bundle_label_selector=selectors)
    assert names_of(of.slice_placement_group) == ["alpha", "alpha", "beta", "beta"]
    assert selectors[1] == {}, "what was given stays as it is"


def test_a_function_runs_on_slices_that_are_reserved_for_it(slices: Cluster) -> None:
    seen = ray.get(tpu.run_on_slice(look, topology="2x2x2", accelerator_version="v4", num_slices=2), timeout=60)
    assert [name for name, *_ in seen] == ["alpha", "alpha", "beta", "beta"]
    wait_until(lambda: free(HEAD) == 2 and free("TPU") == 0)
    with pytest.warns(DeprecationWarning, match="renamed to 'run_on_slice'"), pytest.raises(TimeoutError, match="was not ready within 0.2s"):
        tpu.dispatch(look, topology="2x2x2", accelerator_version="v4", pg_ready_timeout_s=0.2)
    wait_until(lambda: free(HEAD) == 2)


def test_a_slice_without_one_of_its_hosts_is_none(slices: Cluster) -> None:
    hosts = tpu.get_tpu_nodes_for_slice("alpha")
    assert {tpu.get_tpu_slice_name_from_node(host) for host in hosts} == {"alpha"} and len(hosts) == 2
    gone = next(node for node in slices.worker_nodes if node.node_id == hosts[0]["NodeID"])
    slices.remove_node(gone)
    assert len(tpu.get_tpu_nodes_for_slice("alpha")) == 1
    assert tpu.get_num_tpu_slices("2x2x2", "TPU-V4") == tpu.get_num_ready_tpu_slices("2x2x2", "TPU-V4") == 1


def test_a_first_host_that_does_not_say_of_which_slice_it_is(cluster: Any) -> None:
    cluster(num_cpus=1, resources={HEAD: 1}, labels={"ray.io/tpu-topology": "2x2x2"})
    with pytest.raises(RuntimeError, match="Failed to retrieve TPU slice name.*have no label ray.io/tpu-slice-name: [0-9a-f]{56}"):
        tpu.SlicePlacementGroup("2x2x2", "v4")
    wait_until(lambda: free(HEAD) == 1)


def test_without_a_cluster_the_machine_itself_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    ray.shutdown()
    monkeypatch.setenv("OXIRAY_HOST_ROOT", str(RECORDED))
    assert (tpu.get_current_pod_name(), tpu.get_current_pod_worker_count(), tpu.get_num_tpu_chips_on_node()) == ("my-slice", 2, 4)
    assert tpu.get_num_tpu_slices("2x2x2", "TPU-V4") == 0 and tpu.get_tpu_nodes_for_slice("my-slice") == []
    monkeypatch.setenv("OXIRAY_HOST_ROOT", str(RECORDED.parent / "plain"))
    assert (tpu.get_current_pod_name(), tpu.get_current_pod_worker_count(), tpu.get_num_tpu_chips_on_node()) == (None, None, 0)


@pytest.mark.parametrize(
    ("arguments", "workers", "resources"),
    [
        (("4x4", "TPU-V6E"), 4, {"CPU": 1, "TPU": 4}),
        (("2x4", "TPU-V6E"), 1, {"CPU": 1, "TPU": 8}),
        (("2x4", "TPU-V6E", None, 1, 4), 2, {"CPU": 1, "TPU": 4}),
        (("4x4", "v6e", {"TPU": 1, "CPU": 2}), 16, {"CPU": 2, "TPU": 1}),
        (("2x2x2", "TPU7x", {"memory": 5}, 3), 6, {"CPU": 1, "TPU": 4, "memory": 5}),
    ],
)
def test_workers_of_a_slice(arguments: Any, workers: int, resources: dict[str, float]) -> None:
    assert tpu.get_tpu_worker_resources(*arguments) == (workers, resources)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"accelerator_type": "H100"}, "Invalid accelerator_type: H100. It must be one of TPU-V2"),
        ({"topology": "4x"}, "Invalid accelerator topology: '4x'. It must be numbers"),
        ({"topology": "4x4x4"}, "Invalid accelerator topology: '4x4x4' for accelerator version: 'v6e'. Slices of v6e have 2 sides"),
        ({"resources_per_worker": {"TPU": 3}}, r"Total TPU resources \(16\) not divisible by TPUs requested per worker \(3\)"),
        ({"resources_per_worker": {"TPU": 32}, "num_slices": 2}, "do not divide evenly into the TPU devices available per slice"),
        ({"resources_per_worker": {"TPU": 0}}, "TPU resources must be positive"),
        ({"chips_per_vm": 0}, "chips_per_vm must be positive"),
        ({"num_slices": 0}, "num_slices must be positive"),
        ({"tpu_resource_per_chip": 2}, "a chip is one unit of the resource TPU"),
    ],
)
def test_what_is_no_slice_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        tpu.get_tpu_worker_resources(**{"topology": "4x4", "accelerator_type": "TPU-V6E", **options})


def test_slices_for_workers() -> None:
    assert [tpu.get_tpu_num_slices_for_workers("4x4", "TPU-V6E", count) for count in (0, 4, 5, 9)] == [1, 1, 2, 3]
    assert tpu.get_tpu_num_slices_for_workers("4x4", "H100", 9) == tpu.get_tpu_num_slices_for_workers("", "", 9) == 1


def test_versions_and_variables() -> None:
    assert [tpu.get_tpu_version_from_type(name) for name in ("TPU-V6E", "TPU7x", "v4")] == ["v6e", "v7x", "v4"]
    assert tpu.get_tpu_coordinator_env_vars("10.0.0.1", 2, 1) == {
        "MEGASCALE_COORDINATOR_ADDRESS": "10.0.0.1", "MEGASCALE_PORT": "8081",
        "MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "1",
    }  # fmt: skip


def test_what_cannot_run_on_a_slice_is_refused() -> None:
    with pytest.raises(TypeError, match="must be a @ray.remote-decorated function, but got 'builtin_function_or_method'"):
        tpu.run_on_slice(print)
    with pytest.raises(ValueError, match="topology and accelerator_version are required"):
        tpu.run_on_slice(look, topology="4x4")
    with pytest.raises(ValueError, match="slice_index can only be used when an existing tpu_slice"):
        tpu.run_on_slice(look, slice_index=0)


def test_jaxs_profiler_is_started(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    ports: list[int] = []
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(profiler=SimpleNamespace(start_server=ports.append)))
    monkeypatch.setenv("JAX_PROFILER_PORT", "9012")
    tpu.init_jax_profiler(9011)
    tpu.init_jax_profiler()
    assert ports == [9011, 9012]
    monkeypatch.setenv("JAX_PROFILER_PORT", "none")
    tpu.init_jax_profiler()
    assert "JAX's profiler cannot be started" in caplog.text
    monkeypatch.setitem(sys.modules, "jax", None)
    tpu.init_jax_profiler()
    assert "JAX is not installed" in caplog.text
