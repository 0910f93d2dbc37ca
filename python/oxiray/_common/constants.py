"""Names of resources, for compatibility."""

from __future__ import annotations

from oxiray import _missing

HEAD_NODE_RESOURCE_NAME = "node:__internal_head__"
NODE_ID_PREFIX = "node:"

__getattr__ = _missing.attributes(__name__)
