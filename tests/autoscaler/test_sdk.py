"""`ray.autoscaler.sdk` and `ray.cluster_utils.AutoscalingCluster`, as programs for Ray use them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from ray._private.state import state
from ray._raylet import IMPLICIT_RESOURCE_PREFIX
from ray.autoscaler.sdk import request_resources
from ray.cluster_utils import AutoscalingCluster
from watching import wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster() -> Iterator[AutoscalingCluster]:
    cluster = AutoscalingCluster(
        head_resources={"CPU": 0},
        worker_node_types={
            # More than two: a machine that a test before had may be about to leave, and counts until it has.
            "cpu_node": {"resources": {"CPU": 4}, "node_config": {}, "min_workers": 0, "max_workers": 4},
            "gpu_node": {
                "resources": {"CPU": 2, "GPU": 1, "GPU:memory": 80 << 30},
                "node_config": {},
                "min_workers": 0,
                "max_workers": 2,
            },
        },
        idle_timeout_minutes=0.005,
    )
    cluster.start()
    ray.init(address=cluster.address)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def total(resource: str) -> float:
    amount: float = ray.cluster_resources().get(resource, 0)
    return amount


def test_machines_come_for_memory_of_a_gpu_that_they_have(cluster: AutoscalingCluster) -> None:
    @ray.remote(num_cpus=0)
    def compute() -> dict[str, float]:
        return dict(ray.get_runtime_context().get_assigned_resources())

    asked = compute.options(gpu_memory="40GiB")
    assert ray.get([asked.remote(), asked.remote()], timeout=60) == [{"GPU": 0.5, "gpu_memory": 40 << 30}] * 2
    with pytest.raises(ray.exceptions.TaskUnschedulableError, match="has 80.00 GiB gpu_memory, and 90.00 GiB is asked for"):
        ray.get(compute.options(gpu_memory="90GiB").remote(), timeout=60)


def test_machines_come_for_one_more_of_a_kind_than_each_takes(cluster: AutoscalingCluster) -> None:
    @ray.remote(num_cpus=0.1)
    class Replica:
        def where(self) -> str:
            return ray.get_runtime_context().get_node_id()

    resources = {f"{IMPLICIT_RESOURCE_PREFIX}app:Replica": 0.5}
    replicas: list[Any] = []
    # The last two come when the machines of the others are known to be full.
    for _ in range(2):
        replicas += [Replica.options(resources=resources).remote() for _ in range(2)]
        places = Counter(ray.get([replica.where.remote() for replica in replicas], timeout=60))
    # There may be machines still that were brought for the test before.
    assert len(places) >= 2 and max(places.values()) <= 2
    assert not any(name.startswith(IMPLICIT_RESOURCE_PREFIX) for name in ray.cluster_resources())


def test_libraries_are_told_what_may_be_added(cluster: AutoscalingCluster) -> None:
    wait_until(lambda: state.get_cluster_config() is not None, 60)
    config = state.get_cluster_config()
    assert config is not None
    groups = {group.name: group for group in config.node_group_configs}
    assert set(groups) == {"cpu_node", "gpu_node"}
    assert (groups["cpu_node"].min_count, groups["cpu_node"].max_count, groups["cpu_node"].resources["CPU"]) == (0, 4, 4)
    most = state.get_max_resources_from_cluster_config()
    assert most is not None
    # The head has no CPU, and its store counts.
    assert (most["CPU"], most["GPU"]) == (4 * 4 + 2 * 2, 2)
    assert most["object_store_memory"] > 0


def test_machines_come_for_tasks_and_go(cluster: AutoscalingCluster) -> None:
    wait_until(lambda: total("CPU") == 0)
    @ray.remote(num_cpus=1)
    def work() -> str:
        return str(ray.get_runtime_context().get_node_id())

    @ray.remote(num_gpus=1)
    def compute() -> list[Any]:
        return list(ray.get_gpu_ids())

    assert len(set(ray.get([work.remote() for _ in range(4)], timeout=60))) == 1
    assert ray.get(compute.remote(), timeout=60) == [0]
    wait_until(lambda: total("CPU") == 0, 60)


def test_num_cpus_and_bundles_add_up_and_the_last_call_counts(cluster: AutoscalingCluster) -> None:
    request_resources(num_cpus=6)
    wait_until(lambda: total("CPU") == 8, 60)
    request_resources(num_cpus=1, bundles=[{"GPU": 1}])
    wait_until(lambda: (total("GPU"), total("CPU")) == (1, 6), 60)
    request_resources(bundles=[{"CPU": 1}], bundle_label_selectors=[{"ray.io/node-group": "cpu_node"}])
    wait_until(lambda: (total("GPU"), total("CPU")) == (0, 4), 60)
    request_resources()
    wait_until(lambda: total("CPU") == 0, 60)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"num_cpus": 1.5}, TypeError, "num_cpus should be of type int."),
        ({"bundles": {"GPU": 1}}, TypeError, "bundles should be of type List"),
        ({"bundles": ["GPU"]}, TypeError, "each bundle should be a Dict."),
        ({"bundles": [{1: 1}]}, TypeError, "each bundle key should be str."),
        ({"bundles": [{"GPU": True}]}, TypeError, "each bundle value should be a number (int or float)."),
        ({"bundles": [{"GPU": 1.5}]}, ValueError, "more than one is a whole number"),
        ({"bundles": [{"CPU": -1}]}, ValueError, "zero or 0.0001 and more"),
        ({"bundles": [{"CPU": 1e-9}]}, ValueError, "zero or 0.0001 and more"),
        ({"bundle_label_selectors": [{}]}, ValueError, "`bundles` must be provided"),
        ({"bundles": [{"CPU": 1}], "bundle_label_selectors": []}, ValueError, "length equal to the number of bundles"),
        ({"bundles": [{"CPU": 1}], "bundle_label_selectors": [{"a": "b c"}]}, ValueError, "bundle_label_selectors"),
    ],
)
def test_what_is_no_request_is_refused(given: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        request_resources(**given)
    assert text in str(caught.value)


def test_before_init_there_is_nobody_to_ask() -> None:
    ray.shutdown()
    with pytest.raises(RuntimeError, match="Ray is not initialized yet"):
        request_resources(num_cpus=1)
