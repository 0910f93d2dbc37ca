"""Facts about the machine that this process is on."""

from __future__ import annotations

import os
import socket
from typing import Any

from oxiray import _core


def get_node_instance_id() -> str:
    """The name that the cloud gives this machine, as `RAY_CLOUD_INSTANCE_ID` says it; empty where it does not."""
    return os.environ.get("RAY_CLOUD_INSTANCE_ID", "")


def address_towards(address: str) -> str:
    """This machine's address as it is seen from `host:port`; the local one where no network leads there.

    Raises `ValueError` for what is no `host:port`.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise ValueError(f"{address!r} is no address: write `host:port`")
    host = host.removeprefix("[").removesuffix("]")
    try:
        # Nothing is sent: the system only chooses the interface that it would go out by.
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as towards:
            towards.connect((host, int(port)))
            own: str = towards.getsockname()[0]
            return own
    except OSError:
        return "127.0.0.1"


def get_node_ip_address(address: Any = None) -> str:
    """This machine's address within the cluster. Without one: as it is seen from `address`, or the local one where that is None."""
    if not _core.is_connected():
        return "127.0.0.1" if address is None else address_towards(address)
    facts = _core.context()
    for node in _core.cluster().get("nodes", []):
        if node["node_id"] == facts["node_id"]:
            return str(node["address"])
    return str(facts["address"]).rpartition(":")[0] or "127.0.0.1"
