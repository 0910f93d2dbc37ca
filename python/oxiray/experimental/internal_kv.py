"""Small values that the cluster keeps by name, for libraries that coordinate through them.

They live in the daemon, until they are deleted or the cluster ends. Keys, namespaces and values are bytes; text is
taken as UTF-8. `ValueError` where a value is too large to be kept.
"""

from __future__ import annotations

from typing import Any, Union

from oxiray import _core, _missing, _session

Text = Union[str, bytes]

_PUT, _GET, _DELETE, _LIST = 1, 2, 3, 4


def _ask(
    action: int, key: Text, namespace: Text | None, value: Text = b"", widely: bool = False
) -> tuple[int, bytes, list[bytes]]:
    _session.ensure()
    return _core.kept(action, _bytes("namespace", namespace or b""), _bytes("key", key), _bytes("value", value), widely)


def _bytes(what: str, text: Text) -> bytes:
    if isinstance(text, str):
        return text.encode()
    if not isinstance(text, (bytes, bytearray, memoryview)):
        raise TypeError(f"the {what} of a kept value is bytes or text, and {type(text)} was given")
    return bytes(text)


def _internal_kv_initialized() -> bool:
    """Whether there is a cluster to keep values."""
    return _core.is_connected()


def internal_kv_get_gcs_client() -> Any:
    """What asks the head for these values, and for more."""
    from oxiray._private.gcs_client import GcsClient

    return GcsClient()


def _internal_kv_get(key: Text, *, namespace: Text | None = None) -> bytes | None:
    """The value of `key`; None where it has none."""
    count, value, _ = _ask(_GET, key, namespace)
    return value if count else None


def _internal_kv_exists(key: Text, *, namespace: Text | None = None) -> bool:
    """Whether `key` has a value."""
    return bool(_ask(_LIST, key, namespace)[2][:1] == [_bytes("key", key)])


def _internal_kv_put(key: Text, value: Text, overwrite: bool = True, *, namespace: Text | None = None) -> bool:
    """Keeps `value`; one that is there stays unless `overwrite`. Says whether one was there."""
    return bool(_ask(_PUT, key, namespace, value, overwrite)[0])


def _internal_kv_del(key: Text, *, del_by_prefix: bool = False, namespace: Text | None = None) -> int:
    """Forgets `key`, or every key that begins with it; returns how many there were."""
    return _ask(_DELETE, key, namespace, widely=del_by_prefix)[0]


def _internal_kv_list(prefix: Text, *, namespace: Text | None = None) -> list[bytes]:
    """The keys that begin with `prefix`, in order."""
    return _ask(_LIST, prefix, namespace)[2]


__getattr__ = _missing.attributes(__name__)
