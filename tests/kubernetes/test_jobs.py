"""RayJob objects: real daemons in the pods where an entrypoint runs, pods on paper where it is not to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from api_objects import Object
from homes import free_port
from lab import Lab, cluster, wait_until

#: Several waits of one test may each take long on a machine that has other things to do.
pytestmark = pytest.mark.timeout(500)

SAMPLE = Path(__file__).resolve().parent / "samples" / "jobs" / "rayjob.yaml"


def job(entrypoint: str, **spec: Any) -> Object:
    made = cluster()["spec"]
    made["headGroupSpec"]["rayStartParams"]["port"] = str(free_port())
    whole = {"entrypoint": entrypoint, "rayClusterSpec": made, **spec}
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "job"}, "spec": whole}


def status(lab: Lab, name: str = "job") -> Object:
    return dict((lab.api.get("rayjobs", name) or {}).get("status") or {})


def reached(lab: Lab, stage: str, name: str = "job") -> Object:
    def holds() -> Any:
        return status(lab, name).get("jobDeploymentStatus") == stage

    try:
        wait_until(holds, f"the job is {stage}")
    except AssertionError as error:
        logs = "\n".join(log.read_text()[-1500:] for log in lab.folder.glob("*.log"))
        raise AssertionError(f"{error}\n{status(lab, name)}\n{logs}") from None
    return status(lab, name)


def told_of(lab: Lab, reasons: set[str]) -> None:
    """Events come after what they are about."""

    def known() -> set[str]:
        return {event["reason"] for event in lab.api.list("events") if event["regarding"]["kind"] == "RayJob"}

    wait_until(lambda: reasons <= known(), f"events of {reasons}")


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_a_sample_runs_to_its_end_and_its_cluster_goes(lab: Lab, tmp_path: Path) -> None:
    lab.operator()
    lab.kubelet()
    given = yaml.safe_load(SAMPLE.read_text())
    # All heads of this machine share its ports.
    given["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParams"]["port"] = str(free_port())
    given["spec"]["entrypoint"] += f" > {tmp_path}/printed"
    lab.api.create("rayjobs", given)
    told = reached(lab, "Complete", "rayjob-sample")
    assert (told["jobStatus"], told["succeeded"], told["reason"]) == ("SUCCEEDED", 1, "AppSucceeded")
    assert told["rayClusterName"] == "rayjob-sample-1" and told["startTime"] <= told["endTime"]
    assert (tmp_path / "printed").read_text().startswith("test_counter {'CPU': 1.0")
    wait_until(lambda: lab.api.list("rayclusters") == [], "its cluster is deleted")
    there = lab.api.get("rayjobs", "rayjob-sample")
    assert there is not None and there["spec"] == given["spec"], "nobody changes what the user wrote"
    told_of(lab, {"Initializing", "Submitted", "AppSucceeded", "Deleted"})


def test_a_failed_entrypoint_is_tried_again_in_another_cluster(lab: Lab, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    lab.operator()
    lab.kubelet()
    if lab.server:  # an answer is lost: the cluster is there all the same
        lab.server.fail("create", "rayclusters", 500, after=True)
    lab.api.create("rayjobs", job(f"echo $RAY_CLUSTER_NAME >> {ran}; test $(wc -l < {ran}) = 2", backoffLimit=1))
    told = reached(lab, "Complete")
    assert lines(ran) == ["job-1", "job-2"]
    assert (told["failed"], told["succeeded"], told["rayClusterName"]) == (1, 1, "job-2")
    wait_until(lambda: [one["metadata"]["name"] for one in lab.api.list("rayclusters")] == ["job-2"], "the first is gone")


def test_an_operator_killed_after_it_submitted_runs_nothing_twice(lab: Lab, tmp_path: Path) -> None:
    server = lab.stand_in()
    ran, go = tmp_path / "ran", tmp_path / "go"
    first = lab.operator("--lease-duration=15")
    line = f"echo $$ >> {ran}; until test -e {go}; do sleep 0.1; done"
    lab.api.create("rayjobs", job(line))
    wait_until(lambda: status(lab).get("jobId"), "its name is written down")
    server.fail("patch", "rayjobs", 500, times=10_000)
    lab.kubelet()
    wait_until(lambda: lines(ran), "it runs, and nobody could write that down")
    first.kill()
    first.wait()
    assert status(lab)["jobDeploymentStatus"] == "Initializing"
    server.faults.clear()
    lab.operator("--lease-duration=15")
    assert reached(lab, "Running")["jobStatus"] == "RUNNING"
    assert len(lines(ran)) == 1
    # Its time is over: the entrypoint is ended, too.
    lab.api.merge("rayjobs", "job", {"spec": {"activeDeadlineSeconds": 1}})
    told = reached(lab, "Failed")
    assert (told["reason"], told["failed"]) == ("DeadlineExceeded", 1)
    wait_until(lambda: not is_there(int(lines(ran)[0])), "the entrypoint is gone")


def test_a_job_is_suspended_and_begins_anew_and_is_given_up_in_time(lab: Lab) -> None:
    lab.operator()
    lab.kubelet(runs=False)
    made = job("true", suspend=True)
    lab.api.create("rayjobs", made)
    reached(lab, "Suspended")
    assert lab.api.list("rayclusters") == [], "as Kueue has it: nothing before it is admitted"
    lab.api.merge("rayjobs", "job", {"spec": {"suspend": False}})
    wait_until(lambda: "job-1-head" in lab.pods(), "its cluster comes up")
    lab.api.merge("rayjobs", "job", {"spec": {"suspend": True}})
    reached(lab, "Suspended")
    assert lab.api.list("rayclusters") == []
    lab.api.merge("rayjobs", "job", {"spec": {"suspend": False}})
    wait_until(lambda: "job-2-head" in lab.pods(), "another cluster comes up")
    rules = [{"policy": "DeleteSelf", "condition": {"jobDeploymentStatus": "Failed", "ttlSeconds": 0}}]
    late = {"preRunningDeadlineSeconds": 1, "deletionStrategy": {"deletionRules": rules}}
    lab.api.merge("rayjobs", "job", {"spec": late})
    wait_until(lambda: lab.api.get("rayjobs", "job") is None, "no head answers on paper: it failed, and is deleted")
    told_of(lab, {"Suspending", "Suspended", "PreRunningDeadlineExceeded", "Deleted"})


def test_what_cannot_be_is_answered(lab: Lab) -> None:
    lab.operator()
    lab.api.create("rayjobs", job(" ", ttlSecondsAfterFinished=5))
    told = reached(lab, "ValidationFailed")
    assert "entrypoint is empty" in told["message"] and "ttlSecondsAfterFinished does nothing" in told["message"]
    service = {"apiVersion": "ray.io/v1", "kind": "RayService", "metadata": {"name": "served"}, "spec": {"serveConfigV2": ""}}
    lab.api.create("rayservices", service)

    def condition() -> Any:
        found = (lab.api.get("rayservices", "served") or {}).get("status") or {}
        return found.get("conditions")

    ready = wait_until(condition, "the service is answered")[0]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "False", "NotSupported")
    assert "RayJob" in ready["message"]
