"""Clusters in the form in which KubeRay's users have them: applied unchanged, and told what their pods will offer."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import commands
import oxiray
import pytest
import yaml
from lab import Lab, operator_binary, wait_until

#: Several waits of one test may each take long on a machine that has other things to do.
pytestmark = pytest.mark.timeout(400)

SAMPLES = Path(__file__).resolve().parent / "samples"
#: What each worker of a sample offers, its processors and memory aside.
OFFERED = {
    "gpu": {"GPU": 1},
    "mig": {"GPU": 3, "accelerator_type:A100": 1},
    "tpu": {"TPU": 4, "accelerator_type:TPU-V4": 1},
    "autoscaler": {},
}


def devices(resources: dict[str, float]) -> dict[str, float]:
    return {name: amount for name, amount in resources.items() if name not in ("CPU", "memory") and amount}


@pytest.mark.parametrize("sample", sorted(OFFERED))
def test_a_sample_becomes_a_cluster(lab: Lab, sample: str) -> None:
    lab.operator()
    lab.kubelet(runs=False)
    given = yaml.safe_load((SAMPLES / f"{sample}.yaml").read_text())
    name = given["metadata"]["name"]
    lab.api.create("rayclusters", given)
    status = wait_until(lambda: lab.status(name).get("state") == "ready" and lab.status(name), f"{name} is ready")
    assert devices(status["groups"][0]["resourcesPerHost"]) == OFFERED[sample]
    hosts = given["spec"]["workerGroupSpecs"][0].get("numOfHosts", 1)
    assert status["readyWorkerReplicas"] == hosts
    there = lab.api.get("rayclusters", name)
    assert there is not None and there["spec"] == given["spec"], "nobody changes what the user wrote"


@pytest.mark.parametrize("sample", sorted(OFFERED))
def test_what_would_be_made_is_shown_without_an_api(sample: str) -> None:
    command: list[Any] = [operator_binary(), "show", "--json", SAMPLES / f"{sample}.yaml"]
    shown = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)[0]
    groups = shown["status"]["groups"]
    assert devices(groups[0]["resourcesPerHost"]) == OFFERED[sample]
    kinds = [made["kind"] for made in shown["objects"]]
    assert kinds.count("Pod") == 1 + groups[0]["hosts"]
    if sample == "tpu":
        assert groups[0]["resourcesOfFirstHost"] == {"TPU-v4-16-head": 1}


def test_the_command_runs_the_operator_where_there_is_one(tmp_path: Path) -> None:
    command = [str(Path(oxiray.__file__).parent / "_native" / "oxiray"), "operator", "crd"]
    found = subprocess.run(
        command, env={"PATH": str(operator_binary().parent)}, capture_output=True, text=True, check=True, timeout=60
    )
    kept = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes" / "crd.yaml"
    assert found.stdout == kept.read_text(), "oxiray operator crd > deploy/kubernetes/crd.yaml"
    missing = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False, timeout=60)
    assert missing.returncode != 0
    assert "oxiray-operator" in missing.stderr and "deploy/Dockerfile" in missing.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--address=127.0.0.1:1", "--keep-cluster"], "--keep-cluster, --keep-logs-at-head and --authority-file are of use with --head only"),
        (["--head", "--authority-file=/none"], "--authority-file is of use with --port only"),
        (["--head", "--fresh", "--store=etcd://127.0.0.1:1/name"], "--fresh is of use with --head and without --store"),
        (["--address=127.0.0.1:1", "--fresh"], "--fresh is of use with --head and without --store"),
        (["--head", "--join-wait=5"], "--join-wait is of use with --address=HOST:PORT and --token-file only"),
    ],
)
def test_options_for_pods_are_refused_where_they_mean_nothing(options: list[str], said: str) -> None:
    assert said in commands.run("start", *options, check=False)
