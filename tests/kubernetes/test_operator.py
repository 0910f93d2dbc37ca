"""The operator against an API: clusters made, grown, shrunk, rolled, suspended and deleted, with pods on paper."""

from __future__ import annotations

import urllib.request
from typing import Any

import pytest
from lab import Lab, cluster, group, template, wait_until

#: Several waits of one test may each take long on a machine that has other things to do.
pytestmark = pytest.mark.timeout(400)


def ready(lab: Lab, count: int) -> Any:
    def holds() -> Any:
        return lab.status().get("readyWorkerReplicas") == count and lab.condition("HeadPodReady") == "True"

    return wait_until(holds, f"{count} ready workers: {lab.status()}")


def test_the_life_of_a_cluster(lab: Lab) -> None:
    lab.operator()
    lab.kubelet(runs=False)
    lab.api.create("rayclusters", cluster(group(replicas=2)))
    ready(lab, 2)
    assert set(lab.pods()) == {"demo-head", "demo-gpu-0-0", "demo-gpu-1-0"}
    assert lab.condition("RayClusterProvisioned") == "True"
    assert lab.status()["state"] == "ready"
    assert lab.status()["groups"][0]["resourcesPerHost"] == {"CPU": 1, "GPU": 1}
    service = lab.api.get("services", "demo-head-svc")
    assert service is not None and service["spec"]["clusterIP"] == "None"
    if lab.serves("poddisruptionbudgets"):
        assert lab.api.get("poddisruptionbudgets", "demo") is not None
    secret = lab.api.get("secrets", "demo-oxiray-join")
    assert secret is not None and set(secret["data"]) == {"authority", "join-token"}
    # They are written after what they tell of.
    reasons = lambda: {event["reason"] for event in lab.api.list("events")}  # noqa: E731
    wait_until(lambda: {"CreatedHeadPod", "CreatedWorkerPods"} <= reasons(), "what was done is told")

    change = {"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 4}
    lab.api.patch("rayclusters", "demo", [change])
    ready(lab, 4)
    lab.api.patch("rayclusters", "demo", [{**change, "value": 1}])
    ready(lab, 1)
    assert wait_until(lambda: set(lab.pods()) == {"demo-head", "demo-gpu-0-0"}, "one worker")

    lab.api.merge("rayclusters", "demo", {"spec": {"suspend": True}})
    wait_until(lambda: lab.condition("RayClusterSuspended") == "True", "suspended")
    assert lab.pods() == {}
    lab.api.merge("rayclusters", "demo", {"spec": {"suspend": False}})
    ready(lab, 1)

    lab.api.merge("rayclusters", "demo", {"spec": {"workerGroupSpecs": []}})
    wait_until(lambda: set(lab.pods()) == {"demo-head"}, "the removed group is gone")
    lab.api.delete("rayclusters", "demo")
    if lab.collects_garbage():
        wait_until(lambda: lab.api.list("pods") == [] and lab.api.list("services") == [], "nothing is left")


def test_a_template_is_rolled_while_others_stay(lab: Lab) -> None:
    lab.operator()
    lab.kubelet(runs=False)
    lab.api.create("rayclusters", cluster(group(replicas=3)))
    ready(lab, 3)
    newer = template({"cpu": "1", "nvidia.com/gpu": "1"}, "rayproject/ray:2.61.0")
    change = {"op": "replace", "path": "/spec/workerGroupSpecs/0/template", "value": newer}
    lab.api.patch("rayclusters", "demo", [change])
    fewest = 3

    def rolled() -> bool:
        nonlocal fewest
        workers = lab.pods(node_type="worker").values()
        fewest = min(fewest, len(workers))
        images = [pod["spec"]["containers"][0]["image"] for pod in workers]
        return images == ["rayproject/ray:2.61.0"] * 3

    wait_until(rolled, "every worker has the new image")
    assert fewest >= 2
    ready(lab, 3)


def test_a_slice_is_replaced_as_a_whole(lab: Lab) -> None:
    lab.operator()
    kubelet = lab.kubelet(runs=False)
    lab.api.create("rayclusters", cluster(group(replicas=2, numOfHosts=2)))
    ready(lab, 4)
    before = {name: pod["metadata"]["uid"] for name, pod in lab.pods(node_type="worker").items()}
    failed = {"status": {"phase": "Failed", "reason": "Evicted", "message": "its machine is gone"}}
    lab.api.merge("pods", "demo-gpu-1-0", failed, "status")
    other = "demo-gpu-1-1"
    uid = lambda: lab.pods().get(other, {"metadata": {"uid": None}})["metadata"]["uid"]  # noqa: E731
    wait_until(lambda: uid() != before[other], "its other host goes with it")
    ready(lab, 4)
    after = {name: pod["metadata"]["uid"] for name, pod in lab.pods(node_type="worker").items()}
    assert len(set(before.values()) & set(after.values())) == 2
    assert kubelet.errors.empty()


def test_pods_that_fail_are_tried_ever_more_seldom_and_elsewhere(lab: Lab) -> None:
    lab.operator()
    kubelet = lab.kubelet(runs=False)
    kubelet.failing["demo-gpu-.*"] = "UnexpectedAdmissionError"
    lab.api.create("rayclusters", cluster(group(replicas=1)))

    def failures() -> Any:
        groups = lab.status().get("groups") or [{}]
        return groups[0].get("failures", {"count": 0})

    told = wait_until(lambda: (found := failures())["count"] >= 2 and found, "two failures are counted")
    assert told["machines"] == {"machine-1": told["count"]}
    kubelet.failing.clear()
    pod = wait_until(lambda: next(iter(lab.pods(node_type="worker").values()), None), "a third try")
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    rule = terms["nodeSelectorTerms"][0]["matchExpressions"][0]
    assert (rule["operator"], rule["values"]) == ("NotIn", ["machine-1"])
    assert lab.condition("ReplicaFailure") == "True"
    wait_until(lambda: "PodFailed" in {event["reason"] for event in lab.api.list("events")}, "the failure is told")


def test_two_operators_take_turns(lab: Lab) -> None:
    first, metrics = lab.operator("--lease-duration=15"), f"http://127.0.0.1:{lab.port}/metrics"

    def is_leader(url: str) -> bool:
        try:
            return b"oxiray_operator_is_leader 1" in urllib.request.urlopen(url, timeout=30).read()
        except OSError:
            return False

    wait_until(lambda: is_leader(metrics), "the first acts")
    lab.operator("--lease-duration=15")
    second = f"http://127.0.0.1:{lab.port}/metrics"
    lab.kubelet(runs=False)
    lab.api.create("rayclusters", cluster(group(replicas=1)))
    ready(lab, 1)
    assert not is_leader(second)
    first.kill()
    first.wait()
    lab.api.patch("rayclusters", "demo", [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 2}])
    ready(lab, 2)
    wait_until(lambda: is_leader(second), "the second acts")
    answered = urllib.request.urlopen(second.replace("metrics", "readyz"), timeout=30)
    assert answered.status == 200
