"""The operator when the API refuses, forgets, is late or is away: it converges, and no pod is made twice."""

from __future__ import annotations

import collections
import subprocess
from typing import Any

import pytest
from lab import Lab, cluster, group, wait_until

#: Several waits of one test may each take long on a machine that has other things to do.
pytestmark = pytest.mark.timeout(400)

WORKERS = 12


def settled(lab: Lab, workers: int) -> Any:
    def holds() -> Any:
        pods = lab.pods()
        return len(pods) == workers + 1 and lab.status().get("readyWorkerReplicas") == workers

    return wait_until(holds, f"{workers} workers are ready: {lab.status().get('readyWorkerReplicas')}, {sorted(lab.pods())}")


def made_twice(lab: Lab) -> list[str]:
    """The pods that were made more often than once, though none was deleted."""
    history = lab.stand_in().store.history
    made = collections.Counter(
        after["metadata"]["name"] for _, plural, what, _, after in history if plural == "pods" and what == "ADDED"
    )
    return [name for name, count in made.items() if count > 1]


@pytest.mark.parametrize("code", [409, 429, 500, 0])
def test_requests_that_fail_are_made_again(lab: Lab, code: int) -> None:
    server = lab.stand_in()
    headers = {"Retry_After": "1"} if code == 429 else {}
    server.fail("patch", "pods", code, 5, **headers)
    server.fail("list", "pods", code, 1, **headers)
    server.fail("create", "secrets", code if code != 409 else 500, 1, **headers)
    # Carried out, and the answer lost: what an operator cannot tell from a request that never came.
    server.fail("patch", "pods", code, 3, after=True, **headers)
    lab.operator()
    lab.kubelet(runs=False)
    lab.api.create("rayclusters", cluster(group(replicas=WORKERS, maxReplicas=WORKERS)))
    settled(lab, WORKERS)
    assert made_twice(lab) == []
    assert all(fault.times == 0 for fault in server.faults)


def test_an_operator_is_killed_again_and_again(lab: Lab) -> None:
    lab.stand_in()
    lab.kubelet(runs=False)
    lab.api.create("rayclusters", cluster(group(replicas=WORKERS, maxReplicas=WORKERS, numOfHosts=2)))
    for limit in (1, 4, 11):
        running = lab.operator("--no-lease")
        before = len(lab.pods())
        wait_until(lambda until=before + limit: len(lab.pods()) >= min(until, WORKERS * 2 + 1), "some pods are made")
        running.kill()
        running.wait()
    lab.operator("--no-lease")
    settled(lab, WORKERS * 2)
    assert made_twice(lab) == []


def test_watches_end_and_what_they_saw_is_forgotten(lab: Lab) -> None:
    server = lab.stand_in()
    lab.operator()
    lab.kubelet(runs=False)
    lab.api.create("rayclusters", cluster(group(replicas=1, maxReplicas=WORKERS)))
    settled(lab, 1)
    for replicas, fault in ((3, server.drop_watches), (5, server.forget_history), (4, server.drop_watches)):
        fault()
        change = {"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": replicas}
        lab.api.patch("rayclusters", "demo", [change])
        fault()
        settled(lab, replicas)


def test_the_api_is_away_until_the_lease_is_lost(lab: Lab) -> None:
    server = lab.stand_in()
    running = lab.operator("--lease-duration=6")
    lab.kubelet(runs=False)
    lab.api.create("rayclusters", cluster(group(replicas=2)))
    settled(lab, 2)
    server.close()
    # It cannot renew: it ends before another may take the lease, and is started again as any container is.
    assert running.wait(60) != 0
    again = lab.operator("--lease-duration=6")
    with pytest.raises(subprocess.TimeoutExpired):
        again.wait(1)
    server.come_back()
    lab.api.patch("rayclusters", "demo", [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 4}])
    settled(lab, 4)
    assert made_twice(lab) == []


def test_a_quota_that_is_used_up_is_said_and_tried_again(lab: Lab) -> None:
    lab.limit_pods(3)
    lab.operator()
    lab.kubelet(runs=False)
    lab.api.create("rayclusters", cluster(group("large", replicas=4), group("small", replicas=1)))
    wait_until(lambda: len(lab.pods()) == 3, "as many pods as the quota has room for")
    told = wait_until(lambda: (lab.status().get("groups") or [{}])[0].get("shortage"), "the shortage is told")
    assert "exceeded quota" in told
    assert lab.condition("ReplicaFailure") == "True"
    wait_until(lambda: "QuotaExceeded" in {event["reason"] for event in lab.api.list("events")}, "an event")
    lab.limit_pods(None)
    settled(lab, 5)
    wait_until(lambda: lab.condition("ReplicaFailure") == "False", "nothing is in the way any more")


def test_a_pod_that_never_gets_a_machine_is_told(lab: Lab) -> None:
    lab.operator()
    lab.kubelet(runs=False, devices={"nvidia.com/gpu": 1})
    lab.api.create("rayclusters", cluster(group(replicas=2)))
    told = wait_until(lambda: (lab.status().get("groups") or [{}])[0].get("shortage"), "the shortage is told")
    assert "Insufficient nvidia.com/gpu" in told
    assert len(lab.pods(node_type="worker")) == 2
    lab.api.patch("rayclusters", "demo", [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 1}])
    settled(lab, 1)


def test_what_an_old_api_has_no_kind_for_is_left_out_and_said(lab: Lab) -> None:
    server = lab.stand_in()
    server.missing = {"poddisruptionbudgets"}
    lab.operator()
    lab.kubelet(runs=False)
    lab.api.create("rayclusters", cluster(group(replicas=2)))
    settled(lab, 2)
    notes = wait_until(
        lambda: [event["note"] for event in lab.api.list("events") if event["reason"] == "MissingKind"], "an event"
    )
    assert notes == ["the API has no PodDisruptionBudget of policy/v1: the cluster does without"]
