"""What libraries ask the head of Ray, over what Oxiray's head keeps and knows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from oxiray._core import NodeID
from oxiray.experimental import internal_kv

#: The states of a machine, numbered as Ray's are.
_ALIVE, _DEAD = 0, 1
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
    """The small values that the cluster keeps by name. `address` and `cluster_id` are that of the connection there is.

    Limits of time (`timeout`) are accepted and not used: the daemon answers at once, or the connection is lost.
    """

    def __init__(self, address: str | None = None, cluster_id: Any = None) -> None:
        self._address = address

    @property
    def address(self) -> str:
        """What `init(address=...)` takes to come here."""
        from oxiray import _session

        return self._address or str(_session.address_info()["gcs_address"])

    def internal_kv_get(self, key: bytes, namespace: bytes | None = None, timeout: float | None = None) -> bytes | None:
        """The value of `key`; None where it has none."""
        return internal_kv._internal_kv_get(key, namespace=namespace)

    def internal_kv_multi_get(
        self, keys: list[bytes], namespace: bytes | None = None, timeout: float | None = None
    ) -> dict[bytes, bytes]:
        """The values of those keys that have one."""
        found = {key: self.internal_kv_get(key, namespace) for key in keys}
        return {key: value for key, value in found.items() if value is not None}

    def internal_kv_put(
        self, key: bytes, value: bytes, overwrite: bool = False, namespace: bytes | None = None, timeout: float | None = None
    ) -> int:
        """Keeps `value`; returns how many keys there are more, 1 or 0."""
        return int(not internal_kv._internal_kv_put(key, value, overwrite, namespace=namespace))

    def internal_kv_del(
        self, key: bytes, del_by_prefix: bool = False, namespace: bytes | None = None, timeout: float | None = None
    ) -> int:
        """Forgets `key`, or every key that begins with it; returns how many there were."""
        return internal_kv._internal_kv_del(key, del_by_prefix=del_by_prefix, namespace=namespace)

    def internal_kv_exists(self, key: bytes, namespace: bytes | None = None, timeout: float | None = None) -> bool:
        """Whether `key` has a value."""
        return internal_kv._internal_kv_exists(key, namespace=namespace)

    def internal_kv_keys(self, prefix: bytes, namespace: bytes | None = None, timeout: float | None = None) -> list[bytes]:
        """The keys that begin with `prefix`."""
        return internal_kv._internal_kv_list(prefix, namespace=namespace)

    def get_draining_nodes(self, timeout: float | None = None) -> dict[str, int]:
        """The nodes that are drained, with the millisecond since 1970 at which each ends, 0 where there is none."""
        from oxiray._private import state

        return state.state.get_draining_nodes()

    def get_all_node_info(self, timeout: float | None = None) -> dict[NodeID, NodeInfo]:
        """Every machine there is or was, by its identifier."""
        from oxiray._api import nodes

        return {NodeID.from_hex(row["NodeID"]): NodeInfo(row) for row in nodes()}

    def get_all_resource_usage(self, timeout: float | None = None) -> Any:
        """What is free on each living machine: `resource_usage_data.batch` is a list of `node_id` and `resources_available`."""
        from oxiray._private import state

        free = state.available_resources_per_node()
        batch = [
            SimpleNamespace(node_id=bytes.fromhex(node), resources_available=available) for node, available in free.items()
        ]
        return SimpleNamespace(resource_usage_data=SimpleNamespace(batch=batch))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"`GcsClient.{name}` {_ASKED}", name=name, obj=self)
