"""What is installed into a cluster says one thing, whichever way it is installed. `tests/kubernetes` has Helm look at it."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "oxiray"


def test_the_chart_has_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    plain = (DEPLOY / "kubernetes" / "operator.yaml").read_text()
    assert set(re.findall(r"oxiray:([\d.]+)", plain)) == {version}


def rules(text: str) -> list[Any]:
    return sorted(yaml.safe_load(text) or [], key=json.dumps)


def test_the_operator_has_the_same_rights_either_way() -> None:
    templates = (CHART / "templates" / "_rules.tpl").read_text()
    of_chart = rules("\n".join(line for line in templates.splitlines() if "{{" not in line))
    objects = yaml.safe_load_all((DEPLOY / "kubernetes" / "rbac.yaml").read_text())
    roles = [found for found in objects if found["kind"] in ("ClusterRole", "Role")]
    [anywhere, watched] = [role["rules"] for role in roles if role["metadata"]["name"] == "oxiray-operator"]
    hint = "deploy/kubernetes/rbac.yaml and deploy/helm/oxiray/templates/_rules.tpl are to say the same"
    assert of_chart and of_chart == rules(json.dumps(anywhere + watched)), hint


def test_in_all_namespaces_the_operator_may_only_list_device_classes_and_read_machines() -> None:
    objects = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "rbac.yaml").read_text()))
    [anywhere] = [found["rules"] for found in objects if found["kind"] == "ClusterRole"]
    assert anywhere == [
        {"apiGroups": ["resource.k8s.io"], "resources": ["deviceclasses"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
    ]
    [place] = [found["metadata"]["namespace"] for found in objects if "secrets" in json.dumps(found)]
    [operator] = [
        found
        for found in yaml.safe_load_all((DEPLOY / "kubernetes" / "operator.yaml").read_text())
        if found["kind"] == "Deployment"
    ]
    arguments = operator["spec"]["template"]["spec"]["containers"][0]["args"]
    assert [f"--namespace={place}"] == [said for said in arguments if said.startswith("--namespace=")]


def test_nodes_run_as_nobody_special_in_the_image() -> None:
    steps = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text())
    last_stage = steps[steps.rindex("\nFROM ") :].strip().splitlines()
    users = [line.split()[1] for line in last_stage if line.startswith("USER ")]
    # A number, which Kubernetes can hold `runAsNonRoot` against.
    assert users and all(re.fullmatch(r"[1-9]\d*:\d+", user) for user in users), users
    made = next(place for place, line in enumerate(last_stage) if line.startswith("USER "))
    tried = next(place for place, line in enumerate(last_stage) if "import ray" in line)
    assert made < tried, "the image is tried as the user that it runs as"


def test_the_chart_has_the_definitions_and_no_copy_of_them() -> None:
    [definitions] = (CHART / "crds").iterdir()
    assert definitions.is_symlink() and definitions.resolve() == DEPLOY / "kubernetes" / "crd.yaml"
