"""A namespace on a real API server, furnished for the tests, with the operator held to the rules that it is deployed with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_client import Api, ApiError
from api_objects import Object

MANIFESTS = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
#: What an API answers to an account whose rules do not allow what it asks for.
FORBIDDEN = re.compile(r'\S+ is forbidden: User "system:serviceaccount:.*')


class RealServer:
    """What is needed of a server that a kubeconfig of its administrator names. No scheduler and no kubelet may run there."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.namespace = namespace
        self.config: Object = yaml.safe_load(kubeconfig.read_text())
        self.api = Api.of_kubeconfig(str(kubeconfig), namespace)
        rules = (MANIFESTS / "rbac.yaml").read_text().replace("oxiray-system", namespace)
        self.rules = list(yaml.safe_load_all(rules))
        # Each test has its own of what is in no namespace.
        for made in self.rules:
            for named in (made["metadata"], made.get("roleRef", {})):
                if "namespace" not in made["metadata"] and "name" in named:
                    named["name"] += f"-{namespace}"

    def furnish(self) -> None:
        """Applies the definitions, a namespace, and the accounts in it."""
        definitions = yaml.safe_load_all((MANIFESTS / "crd.yaml").read_text())
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        metadata = {"name": "default", "namespace": self.namespace}
        # Tokens for pods may be made by a program that does not run here.
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, "automountServiceAccountToken": False}
        for wanted in (*definitions, namespace, account, *self.rules):
            self.api.request("PATCH", _path(wanted) + "?fieldManager=tests&force=true", wanted, "application/apply-patch+yaml")

    def operator_config(self) -> Object:
        """A kubeconfig with the operator's account in place of the administrator's."""
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/oxiray-operator/token"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = self.api.request("POST", path, asked)["status"]["token"]
        return self.config | {"users": [{"name": user["name"], "user": {"token": token}} for user in self.config["users"]]}

    def denied(self, logs: list[Path]) -> list[str]:
        """What the operator was not allowed, by its own word."""
        return [line for log in logs for line in FORBIDDEN.findall(log.read_text())]

    def collects_garbage(self) -> bool:
        """Whether what an object owns goes with it: another program than the server sees to that."""
        try:
            self.api.request("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager")
        except ApiError as error:
            assert error.code == 404, error
            return False
        return True

    def limit_pods(self, count: int | None) -> None:
        if not self.collects_garbage():
            pytest.skip("quotas are counted by a program that does not run beside this server")
        path = f"/api/v1/namespaces/{self.namespace}/resourcequotas"
        if count is None:
            self.api.request("DELETE", f"{path}/pods")
            return
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods"}}
        self.api.request("POST", path, quota | {"spec": {"hard": {"pods": str(count)}}})

    def close(self) -> None:
        for made in self.rules:
            if "namespace" not in made["metadata"]:
                self.api.request("DELETE", _path(made))
        self.api.request("DELETE", f"/api/v1/namespaces/{self.namespace}")


def _path(wanted: dict[str, Any]) -> str:
    version, metadata = wanted["apiVersion"], wanted["metadata"]
    within = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    root = "apis" if "/" in version else "api"
    return f"/{root}/{version}{within}/{wanted['kind'].lower()}s/{metadata['name']}"
