"""How values travel, under Ray's name for the module. For compatibility."""

from __future__ import annotations

from oxiray import _missing
from oxiray.util.serialization import deregister_serializer, register_serializer

__all__ = ["deregister_serializer", "register_serializer"]

__getattr__ = _missing.attributes(__name__)
