"""A process kubelet: it runs the containers of pods as processes of this machine, each pod with an address of its own.

It stands in for a machine, its container runtime and the cluster's names: a pod's address is 127.x.y.z, the name of a
service in its variables is the address of a pod behind it, and where a volume is mounted is a folder, written in place of the
path. On paper (`runs=False`) pods become ready without any process. Where it is asked to (`limits_memory=True`), a pod's limit
on memory is that of a control group that its processes are in.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
import queue
import re
import shlex
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from api_client import Api, ApiError
from api_objects import Object
from api_store import now
from control_groups import Group

#: How long a kubelet waits before it looks again at what it runs.
PERIOD = 0.2
#: Kubelets of one test run share 127.0.0.0/8.
ADDRESSES = itertools.count(10)


@dataclass
class Pod:
    """A pod that this kubelet runs."""

    name: str
    uid: str
    address: str
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    restarts: int = 0
    is_ready: bool = False
    is_ending: bool = False
    group: Group | None = None
    #: As they were last written into its volumes.
    annotations: Object = field(default_factory=dict)

    def within(self, command: list[str]) -> list[str]:
        """The command, as one of the pod's processes."""
        return self.group.entered_by(command) if self.group else command


class Kubelet:
    """Runs the pods of one namespace until it is closed."""

    def __init__(
        self, api: Api, folder: Path, *, path: str, runs: bool = True, devices: dict[str, int] | None = None,
        machine: str = "machine-1", limits_memory: bool = False,
    ) -> None:  # fmt: skip
        self.limits_memory = limits_memory
        self.api, self.folder, self.path, self.runs, self.machine = api, folder, path, runs, machine
        #: How many of each device the machine has; any number where it is not named.
        self.devices = devices or {}
        self.pods: dict[str, Pod] = {}
        self.numbers: dict[str, int] = {}
        #: On paper: pods whose name matches fail with this reason.
        self.failing: dict[str, str] = {}
        self.is_over = False
        self.errors: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        self.woken = threading.Event()
        self.threads = [threading.Thread(target=self._loop), threading.Thread(target=self._listen)]
        for thread in self.threads:
            thread.start()

    def close(self) -> None:
        self.is_over = True
        self.woken.set()
        for thread in self.threads:
            thread.join()
        for pod in self.pods.values():
            self._kill(pod)
        if not self.errors.empty():
            raise self.errors.get()

    def _listen(self) -> None:
        for _ in self.api.watch("pods", "", lambda: self.is_over):
            self.woken.set()

    def _loop(self) -> None:
        while not self.is_over:
            self.woken.wait(PERIOD)
            self.woken.clear()
            try:
                self._look()
            except (OSError, ApiError):
                continue  # the server is away, or an object has changed meanwhile: the next look sees it
            except BaseException as error:
                self.errors.put(error)
                return

    def _look(self) -> None:
        listed = self.api.list("pods")
        there = {pod["metadata"]["uid"]: pod for pod in listed}
        for uid in set(self.pods) - set(there):
            self._kill(self.pods.pop(uid))
        for found in listed:
            uid, phase = found["metadata"]["uid"], found["status"].get("phase")
            if "deletionTimestamp" in found["metadata"]:
                self._end(found)
            elif phase in ("Succeeded", "Failed"):
                continue
            elif "nodeName" not in found["spec"]:
                self._place(found, listed)
            elif found["spec"]["nodeName"] != self.machine:
                continue
            elif uid not in self.pods:
                self._start(found, listed)
            else:
                self._tend(found, self.pods[uid])

    # What a scheduler does.

    def _place(self, found: Object, listed: list[Object]) -> None:
        for device, count in self.devices.items():
            wanted = [_limit(found, device), *(_limit(pod, device) for pod in listed if "nodeName" in pod["spec"])]
            if wanted[0] and sum(wanted) > count:
                text = f"0/1 nodes are available: 1 Insufficient {device}."
                self._set_condition(found, "PodScheduled", "False", reason="Unschedulable", message=text)
                return
        target = {"apiVersion": "v1", "kind": "Node", "name": self.machine}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": found["metadata"]["name"]}, "target": target}
        self.api.request("POST", self.api.path("pods", found["metadata"]["name"], "binding"), binding)
        found["spec"]["nodeName"] = self.machine

    # What a kubelet does.

    def _start(self, found: Object, listed: list[Object]) -> None:
        name = found["metadata"]["name"]
        # The same for every pod of a name: what a service's name leads to is looked up once, when a container starts.
        number = self.numbers.setdefault(name, next(ADDRESSES))
        address = f"127.{os.getpid() % 200 + 20}.{number // 250}.{number % 250 + 1}"
        pod = Pod(name, found["metadata"]["uid"], address, self.folder / name)
        reason = next((why for pattern, why in self.failing.items() if re.fullmatch(pattern, name)), None)
        if reason:
            self._set_status(found, {"phase": "Failed", "reason": reason, "message": "as the test asked"})
            return
        if self.runs:
            pod.environment = self._environment(found, pod, listed)
            if "" in pod.environment:
                return  # a service that it names has no pod with an address yet
            if self.limits_memory and (mebibytes := _mebibytes(found)):
                pod.group = Group(mebibytes)
            self._run(found, pod)
        self.pods[pod.uid] = pod
        self._set_status(found, {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]})
        if not self.runs:
            pod.is_ready = True
            self._set_condition(found, "Ready", "True")

    def _run(self, found: Object, pod: Pod) -> None:
        container = found["spec"]["containers"][0]
        pod.folder.mkdir(parents=True, exist_ok=True)
        command = [self._local(word, found, pod) for word in container["command"] + container.get("args", [])]
        with (pod.folder / "log").open("ab") as log:
            pod.process = subprocess.Popen(
                pod.within(command), env=pod.environment, stdout=log, stderr=log, cwd=pod.folder, start_new_session=True
            )

    def _tend(self, found: Object, pod: Pod) -> None:
        if pod.process is None:
            return
        self._refresh(found, pod)
        code = pod.process.poll()
        if code is not None:
            if found["spec"].get("restartPolicy", "Always") == "Always":
                pod.restarts += 1
                pod.is_ready = False
                self._set_condition(found, "Ready", "False")
                self._run(found, pod)
                return
            ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
            container = {"name": found["spec"]["containers"][0]["name"], "state": {"terminated": ended}}
            phase = "Succeeded" if code == 0 else "Failed"
            self._set_status(found, {"phase": phase, "containerStatuses": [container]})
        elif not pod.is_ready and self._probe(found, pod):
            pod.is_ready = True
            self._set_condition(found, "Ready", "True")

    def _probe(self, found: Object, pod: Pod) -> bool:
        probe = found["spec"]["containers"][0].get("readinessProbe", {}).get("exec", {}).get("command", ["true"])
        return self._exec(found, pod, probe) == 0

    def _exec(self, found: Object, pod: Pod, command: list[str], limit: float = 30) -> int:
        words = [self._local(word, found, pod) for word in command]
        with (pod.folder / "log").open("ab") as log, contextlib.suppress(subprocess.TimeoutExpired):
            return subprocess.run(pod.within(words), env=pod.environment, stdout=log, stderr=log, timeout=limit, check=False).returncode
        return -1

    def _end(self, found: Object) -> None:
        pod = self.pods.get(found["metadata"]["uid"])
        if pod is None:
            self.api.delete("pods", found["metadata"]["name"], grace=0)
        elif not pod.is_ending:
            pod.is_ending = True
            threading.Thread(target=self._stop, args=(found, pod), daemon=True).start()

    def _stop(self, found: Object, pod: Pod) -> None:
        until = time.monotonic() + found["metadata"]["deletionGracePeriodSeconds"]
        hook = found["spec"]["containers"][0].get("lifecycle", {}).get("preStop", {}).get("exec")
        if pod.process is not None:
            if hook and pod.process.poll() is None:
                self._exec(found, pod, hook["command"], until - time.monotonic())
            with contextlib.suppress(ProcessLookupError):
                pod.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                pod.process.wait(max(0.1, until - time.monotonic()))
            self._kill(pod)
        while not self.is_over:
            try:
                self.api.request("DELETE", self.api.path("pods", pod.name), {"gracePeriodSeconds": 0})
                return
            except ApiError:
                return
            except OSError:
                time.sleep(PERIOD)  # the server is away

    def _kill(self, pod: Pod) -> None:
        if pod.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pod.process.pid, signal.SIGKILL)
            pod.process.wait()
        if pod.group is not None:
            pod.group.close()
            pod.group = None

    # What a container runtime and the cluster's names do.

    def _environment(self, found: Object, pod: Pod, listed: list[Object]) -> dict[str, str]:
        """The container's variables; one without a name where a service is named that leads nowhere yet."""
        fields = {"status.podIP": pod.address, "metadata.name": pod.name, "metadata.uid": pod.uid}
        told = {"PATH": self.path, "HOME": str(pod.folder), "TMPDIR": str(pod.folder), "OXIRAY_TMPDIR": str(pod.folder)}
        for variable in found["spec"]["containers"][0].get("env", []):
            value = variable.get("value")
            if value is None:
                value = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            told[variable["name"]] = self._local(value, found, pod)
        for name, value in told.items():
            if match := re.fullmatch(r"([\w-]+)\.[\w-]+\.svc\.[\w.]+", value):
                address = pod.address if found["metadata"]["labels"].get("ray.io/node-type") == "head" else ""
                told[name] = address or self._behind(match[1], listed)
                if not told[name]:
                    return {"": name}
        return told

    def _behind(self, service: str, listed: list[Object]) -> str:
        wanted = (self.api.get("services", service) or {"spec": {}})["spec"].get("selector", {"": ""})
        fits = (pod for pod in listed if wanted.items() <= (pod["metadata"].get("labels") or {}).items())
        return next((pod["status"]["podIP"] for pod in fits if pod["status"].get("podIP")), "")

    def _local(self, text: str, found: Object, pod: Pod) -> str:
        """With folders of this machine for where volumes are mounted."""
        volumes = {volume["name"]: volume for volume in found["spec"].get("volumes", [])}
        for mount in found["spec"]["containers"][0].get("volumeMounts", []):
            if mount["mountPath"] in text:
                place = self._volume(volumes[mount["name"]], found, pod)
                text = text.replace(mount["mountPath"], shlex.quote(str(place)))
        return text

    def _volume(self, volume: Object, found: Object, pod: Pod) -> Path:
        if claim := volume.get("persistentVolumeClaim"):
            place = self.folder / "claims" / claim["claimName"]
        else:
            place = pod.folder / "volumes" / volume["name"]
        place.mkdir(parents=True, exist_ok=True)
        if secret := volume.get("secret"):
            data = (self.api.get("secrets", secret["secretName"]) or {})["data"]
            for item in secret["items"]:
                (place / item["path"]).write_bytes(base64.b64decode(data[item["key"]]))
        for item in volume.get("downwardAPI", {}).get("items", []):
            annotation = item["fieldRef"]["fieldPath"].removeprefix("metadata.annotations['").removesuffix("']")
            text = (found["metadata"].get("annotations") or {}).get(annotation, "")
            _replace(place / item["path"], self._local(text, found, pod))
        return place

    def _refresh(self, found: Object, pod: Pod) -> None:
        """Writes the pod's annotations into its volumes again, where they have changed."""
        annotations = found["metadata"].get("annotations") or {}
        if annotations != pod.annotations:
            pod.annotations = annotations
            for volume in found["spec"].get("volumes", []):
                if "downwardAPI" in volume:
                    self._volume(volume, found, pod)

    # What is told.

    def _set_status(self, found: Object, status: dict[str, Any]) -> None:
        found["status"] = found["status"] | status
        self.api.merge("pods", found["metadata"]["name"], {"status": status}, "status")

    def _set_condition(self, found: Object, kind: str, status: str, **more: str) -> None:
        conditions = [one for one in found["status"].get("conditions", []) if one["type"] != kind]
        known = [one for one in found["status"].get("conditions", []) if one["type"] == kind]
        if known and known[0]["status"] == status:
            return
        conditions.append({"type": kind, "status": status, "lastTransitionTime": now(), **more})
        self._set_status(found, {"conditions": conditions})


def _limit(pod: Object, device: str) -> int:
    if pod["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    return int(pod["spec"]["containers"][0].get("resources", {}).get("limits", {}).get(device, 0))


def _replace(file: Path, text: str) -> None:
    """As kubelets do: whoever reads it finds the whole of one text."""
    fresh = file.with_name(f".{file.name}")
    fresh.write_text(text)
    fresh.rename(file)


def _mebibytes(pod: Object) -> int:
    """The limit on the memory of a pod, 0 where it has none; in the units that tests use."""
    text = pod["spec"]["containers"][0].get("resources", {}).get("limits", {}).get("memory", "")
    factors = {"Mi": 1, "Gi": 1 << 10}
    return int(text[:-2]) * factors[text[-2:]] if text else 0
