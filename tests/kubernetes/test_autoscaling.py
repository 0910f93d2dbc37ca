"""Clusters with `enableInTreeAutoscaling`: pods come for what waits and go when nobody uses them, whatever the API does."""

from __future__ import annotations

import collections
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from api_objects import Object
from kubelet import Kubelet
from lab import Lab, group, is_ready, wait_until
from within import pod, run, start

#: Several waits of one test may each take long on a machine that has other things to do.
pytestmark = pytest.mark.timeout(400)

#: For how long the API is away: `make test-outage` has it be a minute.
OUTAGE_S = float(os.environ.get("OXIRAY_TEST_OUTAGE_S", "2"))

#: As the document on GPUs has it.
TWO_ACTORS = """
import ray
ray.init()

@ray.remote(num_gpus=1)
class GPUActor:
    def say_hello(self):
        print("I live in a pod with GPU access.")

# Request actor placement.
gpu_actors = [GPUActor.remote() for _ in range(2)]
# The following command will block until two Ray pods with GPU access are scaled
# up and the actors are placed.
ray.get([actor.say_hello.remote() for actor in gpu_actors])
"""
ASK = """
import ray
ray.init()
ray.autoscaler.sdk.request_resources(bundles={bundles})
"""
WHERE = """
import os, ray
ray.init()
print(ray.get(ray.remote(num_gpus=1)(lambda: os.environ["RAY_NODE_TYPE_NAME"]).remote()))
"""
WHERE_MEMORY_IS = """
import os, ray
ray.init()
print(ray.get(ray.remote(gpu_memory="24GiB")(lambda: os.environ["RAY_NODE_TYPE_NAME"]).remote()))
"""
#: An actor for each line that is read.
HOLDERS = """
import os, ray, sys
ray.init(log_to_driver=False)

@ray.remote(num_gpus=1)
class Holder:
    def where(self): return os.environ["RAY_CLOUD_INSTANCE_ID"]

holders = []
for _ in sys.stdin:
    holders.append(Holder.remote())
    print(ray.get(holders[-1].where.remote()), flush=True)
"""


class Scaled:
    """A cluster that grows, and a time line of what was seen of it."""

    def __init__(
        self, lab: Lab, *groups: Object, idle_s: int = 2, spec: Object | None = None, **options: Any
    ) -> None:
        self.lab = lab
        self.kubelet: Kubelet = lab.kubelet(**options)
        self.begun, self.line = time.monotonic(), list[str]()
        options_told = {"idleTimeoutSeconds": idle_s}
        start(lab, *groups, enableInTreeAutoscaling=True, autoscalerOptions=options_told, **(spec or {}))
        self.until(lambda: lab.condition("HeadPodReady") == "True", "the head is there, and no worker")

    def workers(self) -> dict[str, Object]:
        return self.lab.pods(node_type="worker")

    def ready(self) -> int:
        return int(self.lab.status().get("readyWorkerReplicas", 0))

    def replicas(self) -> list[int]:
        found = self.lab.api.get("rayclusters", "demo") or {}
        return [group["replicas"] for group in found["spec"]["workerGroupSpecs"]]

    def note(self, what: str) -> None:
        self.line.append(f"{time.monotonic() - self.begun:7.2f} s  replicas {self.replicas()}  {what}")

    def log(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.lab.folder.glob("operator-*.log")))

    def until(self, holds: Callable[[], Any], what: str) -> None:
        try:
            wait_until(holds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.lab.status()}\n{self.log()}") from None
        self.note(what)

    def stays(self, holds: Callable[[], Any], what: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert holds(), f"{what}\n{self.log()}"
        self.note(what)

    def is_empty(self) -> bool:
        # The status too: it would tell later of pods that are gone.
        return not self.workers() and not any(self.replicas()) and not self.ready()

    @contextlib.contextmanager
    def holders(self) -> Iterator[Callable[[], str]]:
        """A program within; each call has it make one more actor with a GPU, and says on which pod that is."""
        where = pod(self.kubelet, "demo-head")
        command = [sys.executable, "-c", HOLDERS]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=where.environment, cwd=where.folder, **pipes) as program:  # type: ignore[call-overload]

            def more() -> str:
                program.stdin.write("\n")
                program.stdin.flush()
                return str(program.stdout.readline().strip())

            try:
                yield more
            finally:
                program.stdin.close()
                assert program.wait(90) == 0


def made(lab: Lab) -> collections.Counter[str]:
    """How often each pod was made."""
    history = lab.stand_in().store.history
    return collections.Counter(
        after["metadata"]["name"] for _, plural, what, _, after in history if plural == "pods" and what == "ADDED"
    )


def seed_group(**more: Any) -> Object:
    return group("gpu-group", limits={"cpu": "3", "memory": "1Gi", "nvidia.com/gpu": "1"}, **more)


def test_the_document_on_gpus_and_autoscaling(lab: Lab) -> None:
    lab.operator()
    scaled = Scaled(lab, seed_group())
    assert scaled.is_empty()
    printed = run(scaled.kubelet, TWO_ACTORS)
    scaled.note("two actors asked for a GPU each, ran, and their program ended")
    assert printed.count("I live in a pod with GPU access.") == 2, printed
    scaled.until(scaled.is_empty, "both pods are gone after their idle time")
    if lab.server:
        assert made(lab) == {"demo-head": 1, "demo-gpu-group-0-0": 1, "demo-gpu-group-1-0": 1}, "two, and no more"
    run(scaled.kubelet, ASK.format(bundles='[{"GPU": 1}] * 2'))
    scaled.until(lambda: scaled.ready() == 2, "request_resources brought two pods")
    scaled.stays(lambda: len(scaled.workers()) == 2, "they stay, though nobody uses them", 3)
    run(scaled.kubelet, ASK.format(bundles="[]"))
    scaled.until(scaled.is_empty, "the request was taken back, and they are gone")
    assert "Scaled" in {event["reason"] for event in lab.api.list("events")}
    print("\n".join(["", *scaled.line]))


def test_a_slice_comes_and_goes_as_one(lab: Lab) -> None:
    lab.operator()
    scaled = Scaled(lab, seed_group(numOfHosts=2, idleTimeoutSeconds=1), idle_s=1000)
    # As long as one of them is used, neither goes.
    with scaled.holders() as more:
        assert more() in ("demo-gpu-group-0-0", "demo-gpu-group-0-1")
        scaled.until(lambda: len(scaled.workers()) == 2, "both hosts of one replica")
    scaled.until(scaled.is_empty, "both are gone after the idle time of their group")


def test_memory_of_a_gpu_brings_pods_whose_gpus_have_as_much(lab: Lab) -> None:
    lab.operator()
    small, large = [group(name, rayStartParams={"gpu-memory": size}) for name, size in {"small": "16Gi", "large": "80Gi"}.items()]
    scaled = Scaled(lab, {**small, "priority": 10}, large)
    assert run(scaled.kubelet, WHERE_MEMORY_IS).endswith("large")
    scaled.until(scaled.is_empty, "nothing is left of either")


def test_a_group_that_finds_no_machine_is_passed_over(lab: Lab) -> None:
    lab.operator("--unschedulable-wait=1")
    other = group("other", limits={"cpu": "1", "amd.com/gpu": "1"})
    scaled = Scaled(lab, seed_group(priority=10), other, devices={"nvidia.com/gpu": 0})
    assert run(scaled.kubelet, WHERE).endswith("other")
    scaled.until(scaled.is_empty, "nothing is left of either")


def test_a_group_whose_pods_die_is_passed_over(lab: Lab) -> None:
    lab.operator()
    other = group("other", limits={"cpu": "1", "amd.com/gpu": "1"})
    scaled = Scaled(lab, seed_group(priority=10), other)
    scaled.kubelet.failing["demo-gpu-group-.*"] = "StartError"
    assert run(scaled.kubelet, WHERE).endswith("other")
    scaled.until(scaled.is_empty, "nothing is left of either, and nothing is tried for nobody")


@pytest.mark.parametrize("code", [400, 403])
def test_a_group_that_is_refused_is_passed_over(lab: Lab, code: int) -> None:
    lab.operator()
    other = group("other", limits={"cpu": "1", "amd.com/gpu": "1"})
    scaled = Scaled(lab, seed_group(priority=10), other)
    lab.stand_in().fail("patch", "pods", code, 1000, name="demo-gpu-group-0-0")
    assert run(scaled.kubelet, WHERE).endswith("other")
    assert sorted(made(lab)) == ["demo-head", "demo-other-0-0"]


def test_changes_that_fail_are_made_again(lab: Lab) -> None:
    server = lab.stand_in()
    lab.operator()
    scaled = Scaled(lab, seed_group(), idle_s=8)
    for code in (409, 429, 500, 0):
        headers = {"Retry_After": "1"} if code == 429 else {}
        server.fail("patch", "rayclusters", code, 1, **headers)
        # Carried out, and the answer lost.
        server.fail("patch", "rayclusters", code, 1, after=True, **headers)
    run(scaled.kubelet, TWO_ACTORS)
    scaled.until(scaled.is_empty, "both came and went")
    assert made(lab) == {"demo-head": 1, "demo-gpu-group-0-0": 1, "demo-gpu-group-1-0": 1}
    assert all(fault.times == 0 for fault in server.faults)


def test_a_head_whose_pod_is_replaced_finds_its_autoscaler_and_its_pods(lab: Lab) -> None:
    lab.operator()
    keeps = {"gcsFaultToleranceOptions": {"backend": "rocksdb", "storage": {"size": "1Gi"}}}
    scaled = Scaled(lab, seed_group(), spec=keeps)
    run(scaled.kubelet, ASK.format(bundles='[{"GPU": 1}]'))
    scaled.until(lambda: scaled.ready() == 1, "a pod for the standing request")
    uids = {name: pod["metadata"]["uid"] for name, pod in lab.pods().items()}
    lab.api.delete("pods", "demo-head")

    def is_replaced() -> bool:
        # The status of the cluster may tell of the one before for a while.
        head = lab.pods().get("demo-head")
        return head is not None and head["metadata"]["uid"] != uids["demo-head"] and is_ready(head)

    scaled.until(is_replaced, "the head has another pod")
    scaled.until(lambda: lab.condition("HeadPodReady") == "True" and scaled.ready() == 1, "it is there")
    run(scaled.kubelet, ASK.format(bundles='[{"GPU": 1}] * 2'))
    scaled.until(lambda: scaled.ready() == 2, "the next autoscaler brought another")
    assert scaled.workers()["demo-gpu-group-0-0"]["metadata"]["uid"] == uids["demo-gpu-group-0-0"], scaled.log()
    run(scaled.kubelet, ASK.format(bundles="[]"))
    scaled.until(scaled.is_empty, "both are gone")


def test_the_api_is_away_and_the_operator_is_killed(lab: Lab) -> None:
    server = lab.stand_in()
    # In a longer outage the lease is lost, as it is in a cluster; that takes its time.
    options = ["--no-lease"] if OUTAGE_S < 10 else []
    running = lab.operator(*options)
    scaled = Scaled(lab, seed_group())
    with scaled.holders() as more:
        first = more()
        holder = pod(scaled.kubelet, first)
        server.close()
        back = time.monotonic() + OUTAGE_S

        def is_over() -> bool:
            # As a Deployment does: an operator that lost its lease is started again.
            nonlocal running
            if running.poll() is not None:
                running = lab.operator(*options)
            return time.monotonic() >= back

        wait_until(is_over, "the API was away", limit_s=OUTAGE_S + 60)
        server.come_back()
        wait_until(lambda: is_over() and lab.condition("HeadPodReady") == "True", "it is back")
        second = more()
        running.kill()
        running.wait()
        running = lab.operator(*options)
        third = more()
        assert len({first, second, third}) == 3
        assert pod(scaled.kubelet, first).uid == holder.uid
        assert holder.process is not None and holder.process.poll() is None, "what has a grant was left alone"
        assert set(made(lab).values()) == {1}, made(lab)
    scaled.until(scaled.is_empty, "all are gone when their program is")
    assert set(made(lab).values()) == {1}, made(lab)
