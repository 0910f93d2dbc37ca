"""What libraries ask the head of Ray, over what Oxiray's head keeps and knows."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

from oxiray import _session
from oxiray._core import ClusterID, NodeID
from oxiray.exceptions import RpcError
from oxiray.experimental import internal_kv

Answer = TypeVar("Answer")

#: The states of a machine, numbered as Ray's are.
_ALIVE, _DEAD = 0, 1
#: What gRPC calls a limit of time that was passed.
_DEADLINE_EXCEEDED = 4
_ASKED = "is not in Oxiray: use ray.util.state, or the functions of ray.experimental.internal_kv"


class NodeInfo:
    """A machine, with the attributes that Ray's message has and libraries read."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.node_id = bytes.fromhex(row["NodeID"])
        self.node_name = row["NodeName"]
        self.node_manager_address = row["NodeManagerAddress"]
        self.node_manager_hostname = row["NodeManagerHostname"]
        #: What a cloud calls the machine: not known.
        self.instance_id = ""
        self.state = _ALIVE if row["Alive"] else _DEAD
        self.labels = dict(row["Labels"])
        self.resources_total = dict(row["Resources"])


class GcsClient:
    """The small values that the cluster keeps by name, and its machines.

    Without a connection, the first question connects to the cluster at `address`; with one, to another cluster, it raises
    `ValueError`, as a `cluster_id` of another does. A question that is not answered within `timeout` seconds raises `RpcError`.
    """

    def __init__(self, address: str | None = None, cluster_id: Any = None) -> None:
        self._address = address
        self._cluster_id = _digits(cluster_id)

    @property
    def address(self) -> str:
        """What `init(address=...)` takes to come here."""
        return self._address or str(_session.address_info()["gcs_address"])

    def _asked(self, question: Callable[[], Answer], timeout: float | None) -> Answer:
        """What the cluster answers."""
        _session.ensure_at(self._address)
        if self._cluster_id is not None:
            from oxiray._private.worker import global_worker

            if self._cluster_id != global_worker.node.cluster_id:
                raise ValueError(
                    f"cluster_id={self._cluster_id!r} is another cluster's: this process is connected to "
                    f"{global_worker.node.cluster_id!r}, which GcsClient() without it asks"
                )
        return question() if timeout is None else _within(timeout, question)

    def internal_kv_get(self, key: bytes, namespace: bytes | None = None, timeout: float | None = None) -> bytes | None:
        """The value of `key`; None where it has none."""
        return self._asked(lambda: internal_kv._internal_kv_get(key, namespace=namespace), timeout)

    def internal_kv_multi_get(
        self, keys: list[bytes], namespace: bytes | None = None, timeout: float | None = None
    ) -> dict[bytes, bytes]:
        """The values of those keys that have one."""
        values = self._asked(lambda: [internal_kv._internal_kv_get(key, namespace=namespace) for key in keys], timeout)
        return {key: value for key, value in zip(keys, values, strict=True) if value is not None}

    def internal_kv_put(
        self, key: bytes, value: bytes, overwrite: bool = False, namespace: bytes | None = None, timeout: float | None = None
    ) -> int:
        """Keeps `value`; returns how many keys there are more, 1 or 0."""
        return int(not self._asked(lambda: internal_kv._internal_kv_put(key, value, overwrite, namespace=namespace), timeout))

    def internal_kv_del(
        self, key: bytes, del_by_prefix: bool = False, namespace: bytes | None = None, timeout: float | None = None
    ) -> int:
        """Forgets `key`, or every key that begins with it; returns how many there were."""
        return self._asked(lambda: internal_kv._internal_kv_del(key, del_by_prefix=del_by_prefix, namespace=namespace), timeout)

    def internal_kv_exists(self, key: bytes, namespace: bytes | None = None, timeout: float | None = None) -> bool:
        """Whether `key` has a value."""
        return self._asked(lambda: internal_kv._internal_kv_exists(key, namespace=namespace), timeout)

    def internal_kv_keys(self, prefix: bytes, namespace: bytes | None = None, timeout: float | None = None) -> list[bytes]:
        """The keys that begin with `prefix`."""
        return self._asked(lambda: internal_kv._internal_kv_list(prefix, namespace=namespace), timeout)

    def get_draining_nodes(self, timeout: float | None = None) -> dict[str, int]:
        """The nodes that are drained, with the millisecond since 1970 at which each ends, 0 where there is none."""
        from oxiray._private import state

        return self._asked(state.state.get_draining_nodes, timeout)

    def get_all_node_info(self, timeout: float | None = None) -> dict[NodeID, NodeInfo]:
        """Every machine there is or was, by its identifier."""
        from oxiray._api import nodes

        return {NodeID.from_hex(row["NodeID"]): NodeInfo(row) for row in self._asked(nodes, timeout)}

    def get_all_resource_usage(self, timeout: float | None = None) -> Any:
        """What is free on each living machine: `resource_usage_data.batch` is a list of `node_id` and `resources_available`."""
        from oxiray._private import state

        free = self._asked(state.available_resources_per_node, timeout)
        batch = [
            SimpleNamespace(node_id=bytes.fromhex(node), resources_available=available) for node, available in free.items()
        ]
        return SimpleNamespace(resource_usage_data=SimpleNamespace(batch=batch))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"`GcsClient.{name}` {_ASKED}", name=name, obj=self)


def _digits(cluster_id: Any) -> str | None:
    """A cluster's name, of text or of a `ClusterID`; None where it is nil, which stands for any."""
    if isinstance(cluster_id, ClusterID):
        return None if cluster_id.is_nil() else cluster_id.hex()
    return cluster_id or None


def _within(timeout: float, question: Callable[[], Answer]) -> Answer:
    """What `question` returns within so many seconds; a daemon that does not answer is asked in another thread."""
    answers: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put((True, question()))
        except BaseException as error:
            answers.put((False, error))

    threading.Thread(target=ask, name="oxiray-asks", daemon=True).start()
    try:
        is_answered, found = answers.get(timeout=max(0.0, timeout))
    except queue.Empty:
        raise RpcError(f"the cluster did not answer within {timeout} s: see with `oxiray status` whether the head is well", _DEADLINE_EXCEEDED) from None
    if not is_answered:
        raise found
    answer: Answer = found
    return answer
