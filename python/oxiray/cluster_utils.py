"""Several nodes on one machine, for tests of programs that need more than one.

Invariants:
1. Every daemon that a `Cluster` started ends with it, and with this process at the latest, however it ends.
2. A member ends with its head.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oxiray import _cli, _labels, _option_rules, _session, _switches, _without_effect
from oxiray._autoscaling_cluster import AutoscalingCluster as AutoscalingCluster

#: What a node offers where nothing is said, as in Ray: one processor, no accelerator, a small object store.
_DEFAULTS: dict[str, Any] = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 150 * 1024 * 1024}
#: How long a node may take to end its workers, in seconds.
_END_LIMIT = 20.0
#: How often the cluster is asked while nodes are waited for, in seconds.
_POLL = 0.02
#: Whether clusters on one machine are impossible here.
cluster_not_supported = False


class Node:
    """One node of a `Cluster`: a daemon with its workers, its resources and its object store."""

    def __init__(self, process: subprocess.Popen[bytes], ready: dict[str, Any]) -> None:
        self._process = process
        address, session = ready["address"], ready["session"]
        description = json.loads((Path(session) / "session.json").read_text())
        #: Where a head listens for nodes of other machines, and the file with the token that lets them in.
        self._door: tuple[str | None, str | None] = (ready["listens"], ready["token_file"])
        self.address: str = address
        self.gcs_address: str = address
        self.node_id: str = description["node"]
        self._pid: int = description["pid"]
        self.unique_id: str = self.node_id
        self.session_dir = session
        self.raylet_socket_name = str(Path(session) / "socket")

    @property
    def pid(self) -> int:
        """The daemon's process. Of a node that joined over the network it is a child of the one that was started."""
        return self._pid

    def is_alive(self) -> bool:
        """Whether the daemon runs."""
        return self._process.poll() is None

    any_processes_alive = is_alive

    def kill_raylet(self, check_alive: bool = True) -> None:
        """Kills the daemon, which takes its workers with it."""
        self.kill_all_processes(check_alive=check_alive, allow_graceful=False)

    def kill_all_processes(self, check_alive: bool = False, allow_graceful: bool = False, wait: bool = True) -> None:
        """Ends the daemon and its workers: with `allow_graceful` after they have cleaned up.

        With `wait` none of them runs any more when this returns: a worker that outlived its daemon by a moment would
        answer another call.
        """
        # Another cluster may get its address.
        _switches.of_started.pop(self.address, None)
        if not self.is_alive():
            if check_alive:
                raise RuntimeError(f"node {self.node_id} is dead already: check is_alive() first")
            return
        processes = _watch_tree(self._process.pid) if wait else []
        self._process.send_signal(signal.SIGTERM if allow_graceful else signal.SIGKILL)
        if wait:
            try:
                self._process.wait(_END_LIMIT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        _wait_for_ends(processes)

    def __repr__(self) -> str:
        return f"Node({self.node_id}, pid={self.pid})"


class Cluster:
    """A head and any number of further nodes, all on this machine: `Cluster(initialize_head=True)`, then `add_node`.

    With `over_network` the nodes join as those of other machines do: over TLS, each at a loopback address of its own.
    """

    #: What `over_network` means where it is left out.
    over_network = False
    #: For how many seconds such a node may go on without a word from the head. It is short: whoever tests what becomes of
    #: a program when a node dies waits for it.
    node_lease_s = 4.0

    def __init__(
        self,
        initialize_head: bool = False,
        connect: bool = False,
        head_node_args: Mapping[str, Any] | None = None,
        shutdown_at_exit: bool = True,
        over_network: bool | None = None,
    ) -> None:
        if over_network is not None:
            self.over_network = over_network
        self.head_node: Node | None = None
        self.worker_nodes: set[Node] = set()
        self.connected = False
        self._added: list[Node] = []
        self._joined = 0
        if not initialize_head and connect:
            raise RuntimeError("Cannot connect to a cluster that has no head: pass initialize_head=True")
        if shutdown_at_exit:
            atexit.register(self.shutdown)
        if initialize_head:
            self.add_node(**dict(head_node_args or {}))
            if connect:
                self.connect()

    @property
    def address(self) -> str | None:
        """What `init(address=...)` takes; None before there is a head."""
        return None if self.head_node is None else self.head_node.address

    @property
    def gcs_address(self) -> str | None:
        """The same as `address`."""
        return self.address

    def connect(self, namespace: str | None = None) -> Any:
        """Connects this process to the cluster."""
        if self.address is None:
            raise RuntimeError("Cannot connect to a cluster that has no head: call add_node() first")
        context = _session.init(address=self.address, namespace=namespace, ignore_reinit_error=True)
        self.connected = True
        return context

    def add_node(self, wait: bool = True, **node_args: Any) -> Node:
        """Starts a node, the first one as the head. It is part of the cluster when this returns, unless `wait` is off.

        `_system_config` are switches, as `init` takes them, of this node's processes; those of the head are also those of a driver
        of this process that connects to it. What has no effect is told of once, by the logger "ray".

        Raises `ValueError` or `TypeError` for what no node can offer, `RuntimeError` where it does not start.
        """
        node = _start(self.address, {**node_args, **self._way_in(node_args)})
        if self.head_node is None:
            self.head_node = node
        else:
            self.worker_nodes.add(node)
        self._added.append(node)
        if wait:
            self.wait_for_nodes()
        return node

    def remove_node(self, node: Node, allow_graceful: bool = True) -> None:
        """Ends a node and waits until the cluster has noticed; the head takes all others with it."""
        if node not in self._added:
            raise ValueError(f"{node!r} is no node of this cluster, or was removed already")
        node.kill_all_processes(allow_graceful=allow_graceful)
        self._added.remove(node)
        if node is self.head_node:
            self.head_node = None
            for member in list(self.worker_nodes):
                member.kill_all_processes(allow_graceful=allow_graceful)
                self._added.remove(member)
            self.worker_nodes.clear()
            return
        self.worker_nodes.discard(node)
        _until(lambda: node.node_id not in self._alive(), 30, lambda: f"node {node.node_id} is still seen as alive")

    def wait_for_nodes(self, timeout: float = 30) -> None:
        """Waits until the nodes seen as alive are those that run. Raises `TimeoutError`."""
        # A member ends with its head, so that one that died is none to wait for.
        running = lambda: {node.node_id for node in self._added if node.is_alive()}  # noqa: E731
        _until(lambda: self._alive() == running(), timeout, lambda: f"alive are {self._alive()}, running {running()}")

    def list_all_nodes(self) -> list[Node]:
        """The head and the other nodes that were not removed."""
        return [*self.worker_nodes, *([self.head_node] if self.head_node is not None else [])]

    def remaining_processes_alive(self) -> bool:
        """Whether all nodes run."""
        return all(node.is_alive() for node in self._added)

    def shutdown(self) -> None:
        """Ends all nodes, the head last."""
        if self.connected:
            self.connected = False
            _session.shutdown()
        for node in [*self.worker_nodes, *([self.head_node] if self.head_node is not None else [])]:
            node.kill_all_processes(allow_graceful=True, wait=False)
        for node in self._added:
            node.kill_all_processes(allow_graceful=True)
        self._added.clear()
        self.worker_nodes.clear()
        self.head_node = None

    def _way_in(self, node_args: Mapping[str, Any]) -> dict[str, Any]:
        """What the daemon's configuration says of the network."""
        if not self.over_network:
            return {}
        if self.head_node is None:
            lease = {"lease_ms": int(self.node_lease_s * 1000)}
            return {"_network": {"head": {"listen": "127.0.0.1:0"}, "member": lease}}
        address, token_file = self.head_node._door
        own = node_args.get("node_ip_address") or f"127.0.0.{2 + self._joined}"
        self._joined += 1
        return {"node_ip_address": own, "_network": {"member": {"join": address, "token_file": token_file}}}

    def _alive(self) -> set[str]:
        command = [str(_cli.native_binary()), "status", "--json", "--address", str(self.address)]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        if told.returncode != 0:
            raise RuntimeError(f"the head does not answer: {told.stderr.strip()}")
        return {node["node_id"] for node in json.loads(told.stdout)["nodes"] if node["alive"]}


def _watch_tree(root: int) -> list[int]:
    """A descriptor of each process that descends from `root`: it is readable once that process has ended."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = int(Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it ended meanwhile
            children.setdefault(parent, []).append(int(entry))
    found, descendants = [], list(children.get(root, ()))
    while descendants:
        pid = descendants.pop()
        descendants += children.get(pid, ())
        try:
            found.append(os.pidfd_open(pid))
        except OSError:
            continue
    return found


def _wait_for_ends(processes: list[int]) -> None:
    """Waits for processes that die with their daemon, as the kernel sees to, and closes their descriptors."""
    until = time.monotonic() + _END_LIMIT
    for process in processes:
        ended = select.poll()
        ended.register(process, select.POLLIN)
        ended.poll(max(0.0, until - time.monotonic()) * 1000)
        os.close(process)


def _until(holds: Any, timeout: float, otherwise: Any) -> None:
    until = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError(f"the cluster did not settle within {timeout} s: {otherwise()}")
        time.sleep(_POLL)


def _start(address: str | None, node_args: dict[str, Any]) -> Node:
    config, variables = _config(address, {**_DEFAULTS, **node_args})
    command = [str(_cli.native_binary()), "daemon", "--config", json.dumps(config)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **_cli.interpreter_variable(), **variables},
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    with process.stdout as output, process.stderr as errors:
        # One line when it serves; then its output goes to its log.
        line = output.readline()
        if not line:
            process.wait()
            text = errors.read().decode(errors="replace").strip().removeprefix("error: ")
            raise RuntimeError(f"the node did not start: {text}")
    node = Node(process, json.loads(line))
    if address is None:
        _switches.of_started[node.address] = dict(node_args.get("_system_config") or {})
    return node


def _config(address: str | None, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The daemon's configuration and its variables, of what `add_node` was given."""
    resources = dict(given.pop("resources", None) or {})
    for name, keyword in (("CPU", "num_cpus"), ("GPU", "num_gpus"), ("memory", "memory")):
        if name in resources:
            raise ValueError(f"resources must not name {name}: use {keyword}")
        quantity = given.pop(keyword, None)
        if quantity is not None:
            resources[name] = quantity
    for name, quantity in resources.items():
        _option_rules.check_share(name, quantity)
    labels = given.pop("labels", None) or {}
    _labels.check_labels("labels", labels)
    machine = {
        "resources": {name: float(quantity) for name, quantity in resources.items()},
        "labels": labels,
        "object_store_memory": int(given.pop("object_store_memory")),
        "spill_directory": given.pop("object_spilling_directory", None),
        "device_isolation": given.pop("device_isolation", None),
        "device_violations": given.pop("device_violations", None),
        "gpu_memory": given.pop("gpu_memory", None),
        "gpu_memory_enforcement": given.pop("gpu_memory_enforcement", None),
        "gpu_memory_library": given.pop("gpu_memory_library", None),
        "node_name": given.pop("node_name", None),
        "node_ip_address": given.pop("node_ip_address", None),
    }
    config: dict[str, Any] = {
        "machine": machine,
        "temp_dir": given.pop("temp_dir", None),
        "interpreter": sys.executable,
        "starter": os.getpid(),
        # The head takes a port that no other cluster of this user has.
        "port": None if address is not None else int(given.pop("port", None) or 0),
        "member": {"join": address},
        **given.pop("_network", {}),
    }
    has_dashboard, port = given.pop("include_dashboard", None), given.pop("dashboard_port", None)
    if address is None and (has_dashboard or (has_dashboard is None and port is not None)):
        config["head"] = {**config.get("head", {}), "dashboard": {"port": port}}
    switches = given.pop("_system_config", None) or {}
    _without_effect.tell_of_system_config(switches, _switches.KNOWN)
    variables = _switches.variables(switches)
    variables |= {str(name): str(value) for name, value in (given.pop("env_vars", None) or {}).items()}
    _without_effect.tell("add_node", given)
    unknown = sorted(set(given) - set(_without_effect.OPTIONS["add_node"]) - {"port"})
    if unknown:
        raise ValueError(
            f"add_node() got {', '.join(unknown)}, which it does not know; it takes num_cpus, num_gpus, memory, resources, "
            "labels, object_store_memory, object_spilling_directory, device_isolation, device_violations, gpu_memory, gpu_memory_enforcement, "
            "gpu_memory_library, temp_dir, node_name, node_ip_address, env_vars, include_dashboard, dashboard_port and _system_config"
        )
    return config, variables
