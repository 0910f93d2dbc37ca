"""The cluster's small key-value store, from the driver and from tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import ray
from ray.experimental import internal_kv as kv


@ray.remote
def leave(key: str) -> bool:
    return kv._internal_kv_put(key, "from a task", namespace="shared")


def test_values_by_name(cluster: Callable[..., Any]) -> None:
    assert not kv._internal_kv_initialized()
    cluster()
    assert kv._internal_kv_initialized()
    assert kv._internal_kv_get("a") is None
    assert kv._internal_kv_put("a", b"\x00\xff") is False
    assert kv._internal_kv_put("a", "other", False) is True
    assert kv._internal_kv_get(b"a") == b"\x00\xff"
    assert kv._internal_kv_put("a", "other") is True
    assert kv._internal_kv_get("a") == b"other"
    assert kv._internal_kv_exists("a")
    assert kv._internal_kv_put("empty", "") is False
    assert kv._internal_kv_get("empty") == b""
    assert not kv._internal_kv_exists("emp")
    assert kv._internal_kv_get("a", namespace="shared") is None
    assert ray.get([leave.remote(f"key/{number}") for number in range(3)]) == [False] * 3
    assert kv._internal_kv_list("key/", namespace=b"shared") == [b"key/0", b"key/1", b"key/2"]
    assert kv._internal_kv_get("key/1", namespace="shared") == b"from a task"
    assert kv._internal_kv_del("key/1", namespace="shared") == 1
    assert kv._internal_kv_del("key/1", namespace="shared") == 0
    assert kv._internal_kv_del("key/", del_by_prefix=True, namespace="shared") == 2
    assert kv._internal_kv_list("", namespace="shared") == []
    assert kv._internal_kv_list("") == [b"a", b"empty"]


def test_what_is_too_large_is_refused_and_the_rest_goes_on(cluster: Callable[..., Any]) -> None:
    cluster()
    with pytest.raises(ValueError, match="32 MiB"):
        kv._internal_kv_put("big", bytes((32 << 20) + 1))
    with pytest.raises(ValueError, match="shorter name"):
        kv._internal_kv_put("k" * 70_000, "x")
    with pytest.raises(TypeError, match="bytes or text"):
        kv._internal_kv_put("k", 5)  # type: ignore[arg-type]
    for number in range(8):
        kv._internal_kv_put(f"chunk/{number}", bytes(31 << 20))
    with pytest.raises(ValueError, match="256 MiB"):
        kv._internal_kv_put("one more", bytes(31 << 20))
    assert kv._internal_kv_del("chunk/", del_by_prefix=True) == 8
    assert kv._internal_kv_put("one more", bytes(31 << 20)) is False
