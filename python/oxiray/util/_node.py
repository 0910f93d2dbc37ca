"""Facts about the machine that this process is on."""

from __future__ import annotations

import os
from typing import Any

from oxiray import _core


def get_node_instance_id() -> str:
    """The name that the cloud gives this machine, as `RAY_CLOUD_INSTANCE_ID` says it; empty where it does not."""
    return os.environ.get("RAY_CLOUD_INSTANCE_ID", "")


def get_node_ip_address(address: Any = None) -> str:
    """This machine's address within the cluster; the local one where there is no cluster. `address` is not used."""
    if not _core.is_connected():
        return "127.0.0.1"
    facts = _core.context()
    for node in _core.cluster().get("nodes", []):
        if node["node_id"] == facts["node_id"]:
            return str(node["address"])
    return str(facts["address"]).rpartition(":")[0] or "127.0.0.1"
