"""What libraries ask the head of Ray, over what Oxiray's head keeps and knows."""

from __future__ import annotations

from typing import Any

from oxiray.experimental import internal_kv

_ASKED = "is not in Oxiray: use ray.util.state, or the functions of ray.experimental.internal_kv"


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

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"`GcsClient.{name}` {_ASKED}", name=name, obj=self)
