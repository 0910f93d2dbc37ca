"""The Helm chart, rendered by Helm itself: what comes of it is valid, and the operator runs by it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import schemas
import yaml
from api_client import Api
from api_objects import Object
from api_server import OPERATOR
from homes import free_port
from lab import ROOT, Lab, cluster, group, operator_binary, wait_until

CHART = ROOT / "deploy" / "helm" / "oxiray"
VALUES = Path(__file__).resolve().parent / "values"
HELM = schemas.TOOLS / "helm"
NAMESPACE = "oxiray-system"
#: Labels that tell of the chart, which those who apply the plain objects do not use.
OF_THE_CHART = {"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version"}
#: Kinds that other projects define.
FOREIGN = {"ServiceMonitor"}

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(not HELM.exists(), reason="no Helm: scripts/kubernetes-tools .build/kubernetes"),
]


def helm(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [HELM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def objects(text: str) -> list[Object]:
    return [found for found in yaml.safe_load_all(text) if found]


def rendered(*options: str | Path) -> list[Object]:
    """All that an installation as `oxiray` in its own namespace would make."""
    return objects(helm("template", "oxiray", CHART, "--namespace", NAMESPACE, *options).stdout)


def values(name: str) -> list[str | Path]:
    return ["--values", VALUES / f"{name}.yaml"] if name else []


def one(found: list[Object], kind: str, name: str = "") -> Object:
    [only] = [each for each in found if each["kind"] == kind and name in ("", each["metadata"]["name"])]
    return only


def role_of(binding: Object, found: list[Object]) -> Object:
    place = binding["metadata"].get("namespace")
    of_place = [each for each in found if each["metadata"].get("namespace") == place]
    return one(of_place, binding["roleRef"]["kind"], binding["roleRef"]["name"])


def container(found: list[Object]) -> Object:
    [only] = one(found, "Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(only)


@pytest.mark.parametrize("name", ["", "namespaces", "single", "everything"])
def test_what_the_chart_makes_is_valid(name: str) -> None:
    linted = helm("lint", "--strict", CHART, *values(name))
    assert "0 chart(s) failed" in linted.stdout
    found = rendered(*values(name), "--include-crds")
    wrong = [problem for each in found if each["kind"] not in FOREIGN for problem in schemas.problems(each)]
    assert wrong == []
    identities = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in found]
    assert len(set(identities)) == len(identities)

    pod = one(found, "Deployment")["spec"]["template"]
    selector = one(found, "Deployment")["spec"]["selector"]["matchLabels"]
    chosen = [selector]
    for each in found:
        if each["kind"] in ("Service", "PodDisruptionBudget", "ServiceMonitor", "NetworkPolicy"):
            selects = each["spec"].get("selector") or each["spec"]["podSelector"]
            chosen.append(selects.get("matchLabels") or selects)
    assert all(labels == selector for labels in chosen) and selector.items() <= pod["metadata"]["labels"].items()
    accounts = [each["metadata"]["name"] for each in found if each["kind"] == "ServiceAccount"] or ["given"]
    assert [pod["spec"]["serviceAccountName"]] == accounts
    for binding in (each for each in found if each["kind"].endswith("Binding")):
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": accounts[0], "namespace": NAMESPACE}]
        assert role_of(binding, found)


@pytest.mark.parametrize("name", ["", "namespaces", "single", "everything"])
def test_the_operator_understands_its_arguments(name: str) -> None:
    given = container(rendered(*values(name)))
    assert given["command"] == ["oxiray", "operator"]
    # Arguments are read in order, and a wrong one is told before help is given.
    command = [operator_binary(), *given["args"], "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    wrong = subprocess.run([*command[:-1], "--namespaces", "--help"], capture_output=True, check=False, timeout=60)
    assert wrong.returncode != 0


def test_values_reach_what_they_are_about() -> None:
    found = rendered(*values("everything"))
    given = container(found)
    assert given["image"] == "oxiray@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    said = ["--listen=0.0.0.0:9090", "--lease-name=our-operator", "--lease-duration=30"]
    said += ["--image=rayproject/ray=registry.example.com/oxiray:cuda"]
    said += ["--device=example.com/npu=NPU", "--device=npu.example.com=NPU"]
    said += ["--unschedulable-wait=120", "--cluster-domain=example.internal", "--identity=$(POD_NAME)"]
    assert given["args"] == said
    pod = one(found, "Deployment")["spec"]["template"]["spec"]
    assert pod["priorityClassName"] == "system-cluster-critical" and pod["nodeSelector"] and pod["affinity"]
    assert pod["tolerations"] and pod["topologySpreadConstraints"]
    assert given["ports"] == [{"name": "metrics", "containerPort": 9090, "protocol": "TCP"}]
    [ingress] = one(found, "NetworkPolicy")["spec"]["ingress"]
    assert (ingress["ports"][0]["port"], len(ingress["from"])) == (9090, 1)
    lease = one(found, "Role", "our-operator-lease")["rules"]
    assert [rule.get("resourceNames") for rule in lease] == [None, ["our-operator"]]

    alone = rendered(*values("single"))
    assert {each["kind"] for each in alone} == {"Deployment"}
    assert one(alone, "Deployment")["spec"]["strategy"] == {"type": "Recreate"}
    assert "runAsUser" not in one(alone, "Deployment")["spec"]["template"]["spec"]["securityContext"]
    assert "--no-lease" in container(alone)["args"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("replica=3", "additional properties 'replica' not allowed"),
        ("replicas=two", "replicas"),
        ("leaderElection.enabled=false", "two operators would act at once; set replicas to 1"),
        ("watchAllNamespaces=true,watchNamespaces={a}", "set one of them"),
        ("metrics.serviceMonitor.enabled=true,metrics.service.enabled=false", "needs metrics.service.enabled"),
    ],
)
def test_wrong_values_are_refused(given: str, said: str) -> None:
    refused = helm("template", "oxiray", CHART, "--set", given, check=False)
    assert refused.returncode != 0 and said in refused.stderr


def plain(found: list[Object]) -> list[Object]:
    """The objects without the chart's own labels, they and their rules in an order of their own."""

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without(inner) for key, inner in value.items() if key not in OF_THE_CHART}
        return [without(inner) for inner in value] if isinstance(value, list) else value

    kept = [without(each) for each in found if each["kind"] != "Namespace"]
    for each in kept:
        each.get("rules", []).sort(key=json.dumps)
    return sorted(kept, key=lambda each: (each["kind"], each["metadata"]["name"]))


def test_the_plain_objects_are_those_of_the_chart() -> None:
    command = [schemas.TOOLS / "kubectl", "kustomize", ROOT / "deploy" / "kubernetes"]
    built = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    hint = "deploy/kubernetes and deploy/helm/oxiray/templates are to say the same"
    assert plain(objects(built)) == plain(rendered("--include-crds")), hint


def test_the_package_has_the_definition(tmp_path: Path) -> None:
    helm("package", CHART, "--destination", tmp_path)
    [package] = tmp_path.glob("oxiray-*.tgz")
    made = subprocess.run([operator_binary(), "crd"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert objects(helm("show", "crds", package).stdout) == objects(made)
    told = objects(helm("template", "oxiray", package, "--namespace", NAMESPACE).stdout)
    assert plain(told) == plain(rendered())


def rules(found: list[Object]) -> list[Object]:
    """What the operator's account may do, by the roles that are bound to it."""
    told = []
    for binding in (each for each in found if each["kind"].endswith("Binding")):
        place = {name: binding["metadata"][name] for name in ("namespace",) if name in binding["metadata"]}
        told += [rule | place for rule in role_of(binding, found)["rules"]]
    return told


@pytest.mark.parametrize(
    ("given", "places"),
    [
        ([], {NAMESPACE}),
        (["--set", "watchNamespaces={team-a,team-b}"], {"team-a", "team-b"}),
        (["--set", "watchAllNamespaces=true"], {None}),
    ],
)
def test_secrets_are_read_and_pods_made_where_clusters_are_looked_after_only(
    given: list[str], places: set[str | None]
) -> None:
    found = rendered(*given)
    for resource in ("secrets", "pods"):
        assert {rule.get("namespace") for rule in rules(found) if resource in rule["resources"]} == places
    said = {one.partition("=")[2] for one in container(found)["args"] if one.startswith("--namespace=")}
    assert said == {place for place in places if place is not None}


def test_an_operator_with_rights_in_two_namespaces_acts_in_them_and_nowhere_else(lab: Lab) -> None:
    server = lab.stand_in()
    other, strange = f"{lab.namespace}-other", f"{lab.namespace}-strange"
    watched = "{" + f"{lab.namespace},{other}" + "}"
    found = rendered("--set", f"watchNamespaces={watched}")
    server.rules[OPERATOR] = rules(found)
    port = free_port()
    given = [f"--listen=127.0.0.1:{port}" if one.startswith("--listen=") else one for one in container(found)["args"]]
    pod = {"POD_NAME": "operator-0", "POD_NAMESPACE": NAMESPACE}
    environment = os.environ | pod | {"KUBECONFIG": str(lab.kubeconfig)}
    with (lab.folder / "operator.log").open("wb") as log:
        lab.operators.append(subprocess.Popen([operator_binary(), *given], env=environment, stderr=log))
    apis = {name: Api(server.url, name) for name in (lab.namespace, other, strange)}
    for api in apis.values():
        api.create("rayclusters", cluster(group(replicas=1)))
    for name in (lab.namespace, other):
        wait_until(lambda api=apis[name]: len(api.list("pods")) == 2, f"a head and a worker in {name}")
    image = apis[other].list("pods")[0]["spec"]["containers"][0]["image"]
    assert image == container(found)["image"], "an image of Ray's is replaced by the operator's"
    assert apis[strange].list("pods") == []
    assert Api(server.url, NAMESPACE).get("leases", "oxiray-operator") is not None
