"""Real daemons in the pods of a process kubelet: they find each other, run programs, hand on what they have, and come back."""

from __future__ import annotations

import json

import pytest
from homes import free_port
from lab import Lab, cluster, group, is_ready, wait_until
from within import pod, ready, run, start

#: Several waits of one test may each take long on a machine that has other things to do.
pytestmark = pytest.mark.timeout(400)

RESOURCES = """
import json, ray
ray.init()
print(json.dumps([ray.cluster_resources(), [node["Labels"] for node in ray.nodes() if node["Alive"]]]))
"""
ACTORS = """
import os, ray
ray.init()

@ray.remote(num_gpus=1)
class Holder:
    def told(self):
        return ray.get_gpu_ids(), os.environ["RAY_CLOUD_INSTANCE_ID"]

holders = [Holder.remote() for _ in range(2)]
print(sorted(ray.get([holder.told.remote() for holder in holders])))
"""
KEPT = """
import ray
from ray.experimental import internal_kv
ray.init()
before = internal_kv._internal_kv_get(b"kept")
internal_kv._internal_kv_put(b"kept", b"this")
print(before)
"""


def test_nodes_offer_what_the_status_says_and_devices_are_granted(lab: Lab) -> None:
    lab.operator()
    kubelet = lab.kubelet()
    limits = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    labels = {"ray.io/accelerator-type": "A100"}
    start(lab, group(replicas=2, limits=limits, labels=labels))
    ready(lab, 2)
    resources, nodes = json.loads(run(kubelet, RESOURCES))
    told = lab.status()["groups"][0]["resourcesPerHost"]
    assert resources["GPU"] == 2 * told["GPU"]
    assert resources["CPU"] == 2 * told["CPU"], "the head is of no account, as it says"
    assert resources["accelerator_type:A100"] == 2
    assert sorted(node.get("ray.io/node-group", "") for node in nodes) == ["gpu", "gpu", "headgroup"]
    workers = lab.pods(node_type="worker")
    uids = {pod["metadata"]["uid"] for pod in workers.values()}
    assert {node["oxiray.io/instance"] for node in nodes} >= uids
    printed = run(kubelet, ACTORS)
    assert sorted(workers) == sorted(name for name in workers if name in printed), printed
    lab.api.patch("rayclusters", "demo", [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 0}])
    wait_until(lambda: len(lab.api.list("pods")) == 1, "the workers were drained and are gone")
    wait_until(lambda: json.loads(run(kubelet, RESOURCES))[0].get("GPU", 0) == 0, "the head knows")


def test_nodes_are_labelled_with_the_zone_and_the_domain_of_their_machines(lab: Lab) -> None:
    """The pods run before they are told, and their nodes wait for that; what a group says by hand wins."""
    labels = {"topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "r", "nvidia.com/gpu.clique": "9f1f.3"}
    machine = f"tray-{lab.namespace}"
    lab.api.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": machine, "labels": {**labels, "other": "x"}}})
    lab.operator()
    kubelet = lab.kubelet(machine=machine)
    start(lab, group(replicas=1, labels={"topology.kubernetes.io/zone": "by-hand"}))
    ready(lab, 1)
    _, nodes = json.loads(run(kubelet, RESOURCES))
    told = {node["ray.io/node-group"]: node for node in nodes}
    expected = {"topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "r", "ray.io/gpu-domain": "9f1f.3"}
    assert expected.items() <= told["headgroup"].items(), told
    assert (expected | {"topology.kubernetes.io/zone": "by-hand"}).items() <= told["gpu"].items(), told
    assert not any("other" in node or "nvidia.com/gpu.clique" in node for node in nodes)
    lab.api.delete("nodes", machine)


def test_an_operator_that_may_not_read_machines_says_so_and_nodes_do_not_wait(lab: Lab) -> None:
    server = lab.stand_in()
    server.fail("get", "nodes", 403, times=100)
    lab.operator()
    kubelet = lab.kubelet()
    start(lab, group(replicas=1))
    ready(lab, 1)
    events = [event for event in lab.api.list("events") if event["reason"] == "MachinesUnread"]
    assert events and "may not `get` `nodes`" in events[0]["note"], events
    resources, _ = json.loads(run(kubelet, RESOURCES))
    assert resources["GPU"] == 1
    told = [found["metadata"]["annotations"]["oxiray.io/machine-labels"] for found in lab.pods().values()]
    assert told == ["{}", "{}"], told


def test_containers_with_commands_of_their_own_start_the_node_by_the_variable(lab: Lab) -> None:
    """As in KubeRay's sample `overwrite-command`, where the cluster says so for all its pods."""
    lab.operator()
    kubelet = lab.kubelet()
    made = cluster(group(replicas=1))
    made["metadata"]["annotations"] = {"ray.io/overwrite-container-cmd": "true"}
    made["spec"]["headGroupSpec"]["rayStartParams"]["port"] = str(free_port())
    for one in (made["spec"]["headGroupSpec"], made["spec"]["workerGroupSpecs"][0]):
        container = one["template"]["spec"]["containers"][0]
        container |= {"command": ["/bin/bash", "-lc", "--"]}
        # A login shell has a PATH of its own, which in an image has the command.
        container["args"] = [f'export PATH="{kubelet.path}"; touch mine; $KUBERAY_GEN_RAY_START_CMD']
    lab.api.create("rayclusters", made)
    ready(lab, 1)
    assert all((pod.folder / "mine").exists() for pod in kubelet.pods.values())
    resources, _ = json.loads(run(kubelet, RESOURCES))
    assert resources["GPU"] == 1


def test_a_head_whose_pod_is_replaced_goes_on(lab: Lab) -> None:
    lab.operator()
    kubelet = lab.kubelet()
    options = {"backend": "rocksdb", "storage": {"size": "1Gi"}}
    start(lab, group(replicas=1), gcsFaultToleranceOptions=options)
    ready(lab, 1)
    assert run(kubelet, KEPT) == "None"
    worker = pod(kubelet, "demo-gpu-0-0")
    head = lab.pods()["demo-head"]["metadata"]["uid"]
    lab.api.delete("pods", "demo-head")

    def is_replaced() -> bool:
        # The status of the cluster may tell of the one before for a while.
        found = lab.pods().get("demo-head")
        return found is not None and found["metadata"]["uid"] != head and is_ready(found)

    wait_until(is_replaced, "a new pod")
    ready(lab, 1)
    assert run(kubelet, KEPT) == "b'this'"
    gpus = wait_until(lambda: json.loads(run(kubelet, RESOURCES))[0].get("GPU"), "the worker is back")
    assert gpus == 1
    assert pod(kubelet, "demo-gpu-0-0").uid == worker.uid
    assert worker.process is not None and worker.process.poll() is None, "its node has lived through it"
