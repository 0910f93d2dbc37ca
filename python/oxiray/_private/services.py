"""Where this machine is in the cluster."""

from __future__ import annotations

from oxiray import _missing
from oxiray.util._node import get_node_instance_id, get_node_ip_address

__all__ = ["get_node_instance_id", "get_node_ip_address"]

__getattr__ = _missing.attributes(__name__)
