"""Clusters of real daemons in the pods of a process kubelet, and programs that run within them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from api_objects import Object
from homes import free_port
from kubelet import Kubelet, Pod
from lab import Lab, cluster, wait_until


def pod(kubelet: Kubelet, name: str) -> Pod:
    return next(pod for pod in kubelet.pods.values() if pod.name == name)


def run(kubelet: Kubelet, program: str, name: str = "demo-head", limit_s: float = 90) -> str:
    """What a program prints that runs in a pod."""
    where = pod(kubelet, name)
    command = where.within([sys.executable, "-c", program])
    done = subprocess.run(
        command, env=where.environment, cwd=where.folder, capture_output=True, text=True, timeout=limit_s
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def start(lab: Lab, *groups: Object, **spec: Any) -> None:
    made = cluster(*groups, **spec)
    made["spec"]["headGroupSpec"]["rayStartParams"]["port"] = str(free_port())
    lab.api.create("rayclusters", made)


def ready(lab: Lab, workers: int) -> Any:
    def holds() -> Any:
        return lab.condition("HeadPodReady") == "True" and lab.status().get("readyWorkerReplicas") == workers

    def logs() -> str:
        return "\n".join(f"{log.parent.name}: {log.read_text()[-800:]}" for log in lab.folder.glob("pods/*/log"))

    try:
        return wait_until(holds, f"{workers} ready workers")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{lab.status()}\n{logs()}") from None
