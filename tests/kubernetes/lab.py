"""An API to test against: the stand-in, or the server that OXIRAY_TEST_KUBECONFIG names; and the operator itself."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import oxiray
import pytest
import yaml
from api_client import Api, ApiError
from api_objects import Object
from api_server import OPERATOR, ApiServer
from homes import free_port
from kubelet import Kubelet
from real_server import RealServer

ROOT = Path(__file__).resolve().parent.parent.parent
#: How long anything may take on a slow machine that has other things to do.
LIMIT_S = 90


def wait_until(holds: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> Any:
    """The first true value of `holds`."""
    until = time.monotonic() + limit_s
    while True:
        value = holds()
        if value:
            return value
        assert time.monotonic() < until, f"not within {limit_s} s: {what}"
        time.sleep(0.05)


def operator_binary() -> Path:
    """The operator as cargo made it."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return Path(os.environ.get("OXIRAY_OPERATOR", target / "release" / "oxiray-operator"))


class Lab:
    """A namespace of its own, with operators and kubelets on request."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.namespace = f"oxiray-test-{uuid.uuid4().hex[:8]}"
        self.server: ApiServer | None = None
        self.real: RealServer | None = None
        self.kubeconfig = folder / "kubeconfig"
        if named := os.environ.get("OXIRAY_TEST_KUBECONFIG"):
            self.real = RealServer(Path(named), self.namespace)
            self.api = self.real.api
            self.real.furnish()
            for plural in ("rayclusters", "rayjobs", "rayservices"):
                wait_until(lambda plural=plural: self.serves(plural), f"{plural} are served")
            self.kubeconfig.write_text(json.dumps(self.real.operator_config()))
        else:
            self.server = ApiServer()
            self.kubeconfig.write_text(json.dumps(self._kubeconfig(OPERATOR)))
            self.api = Api(self.server.url, self.namespace)
            manifests = yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "rbac.yaml").read_text())
            rules = [rule for manifest in manifests for rule in manifest.get("rules", [])]
            self.server.rules[OPERATOR] = rules
        self.operators: list[subprocess.Popen[bytes]] = []
        self.kubelets: list[Kubelet] = []
        self.port = 0

    def serves(self, plural: str) -> bool:
        """Whether the API has such a kind: an old one has not all of them."""
        try:
            self.api.list(plural)
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        return True

    def collects_garbage(self) -> bool:
        return self.real is None or self.real.collects_garbage()

    def limit_pods(self, count: int | None) -> None:
        """A quota, or none any more."""
        if self.server:
            self.server.store.pod_quota = count
        elif self.real:
            self.real.limit_pods(count)

    def _kubeconfig(self, token: str) -> Object:
        assert self.server is not None
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": {"server": self.server.url}}],
            "users": [{"name": "it", "user": {"token": token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "current-context": "it",
        }

    def stand_in(self) -> ApiServer:
        """The stand-in, for faults that a real server does not do on request."""
        if self.server is None:
            pytest.skip("a real server has no faults on request")
        return self.server

    def operator(self, *options: str) -> subprocess.Popen[bytes]:
        binary = operator_binary()
        assert binary.exists(), f"{binary} is missing: cargo build --release -p oxiray-operator"
        self.port = free_port()
        command = [binary, "--namespace", self.namespace, "--listen", f"127.0.0.1:{self.port}"]
        command += ["--lease-namespace", self.namespace, "--identity", f"operator-{len(self.operators)}", *options]
        environment = os.environ | {"KUBECONFIG": str(self.kubeconfig)}
        with (self.folder / f"operator-{len(self.operators)}.log").open("wb") as log:
            self.operators.append(subprocess.Popen(command, env=environment, stderr=log))
        return self.operators[-1]

    def kubelet(self, **options: Any) -> Kubelet:
        # As in an image: the command and an interpreter that has the package.
        commands = self.folder / "bin"
        commands.mkdir(exist_ok=True)
        if not (commands / "oxiray").exists():
            (commands / "oxiray").symlink_to(Path(oxiray.__file__).parent / "_native" / "oxiray")
        path = f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        made = Kubelet(self.api, self.folder / "pods", path=path, **options)
        self.kubelets.append(made)
        return made

    def pods(self, **labels: str) -> dict[str, Object]:
        """The pods that are not being deleted, by name."""
        wanted = ",".join(f"ray.io/{key.replace('_', '-')}={value}" for key, value in labels.items())
        listed = self.api.list("pods", wanted)
        return {pod["metadata"]["name"]: pod for pod in listed if "deletionTimestamp" not in pod["metadata"]}

    def status(self, name: str = "demo") -> Object:
        found = self.api.get("rayclusters", name) or {}
        return dict(found.get("status") or {})

    def condition(self, kind: str, name: str = "demo") -> str | None:
        conditions = {one["type"]: one["status"] for one in self.status(name).get("conditions", [])}
        return conditions.get(kind)

    def close(self) -> None:
        for process in self.operators:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        for kubelet in self.kubelets:
            kubelet.close()
        if self.server:
            with contextlib.suppress(OSError):
                self.server.close()
        denied = self.server.denied if self.server else []
        if self.real:
            denied = self.real.denied(list(self.folder.glob("operator-*.log")))
            self.real.close()
        assert denied == [], "the operator asked for what deploy/kubernetes/rbac.yaml does not allow"


def cluster(*groups: Object, name: str = "demo", **spec: Any) -> Object:
    """A cluster of these groups, with a head of no account."""
    head = {"rayStartParams": {"num-cpus": "0"}, "template": template({"cpu": "1"})}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name},
        "spec": {"headGroupSpec": head, "workerGroupSpecs": list(groups), **spec},
    }


def is_ready(pod: Object) -> bool:
    """Whether its kubelet says so."""
    conditions = pod["status"].get("conditions", [])
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def group(name: str = "gpu", replicas: int = 0, limits: Object | None = None, **more: Any) -> Object:
    made = {"groupName": name, "replicas": replicas, "minReplicas": 0, "maxReplicas": 5, "rayStartParams": {}}
    return {**made, "template": template(limits or {"cpu": "1", "nvidia.com/gpu": "1"}), **more}


def template(limits: Object, image: str = "rayproject/ray:2.60.0") -> Object:
    return {"spec": {"containers": [{"name": "ray", "image": image, "resources": {"limits": limits}}]}}
