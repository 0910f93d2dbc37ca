"""What Ray does not promise to keep, and programs use: the cluster's small key-value store, device objects."""

from __future__ import annotations

from oxiray import _missing
from oxiray.experimental.locations import get_local_object_locations, get_object_locations

__all__ = ["get_local_object_locations", "get_object_locations"]

__getattr__ = _missing.attributes(__name__)
