"""What Ray does not promise to keep, and programs use: the cluster's small key-value store."""

from __future__ import annotations

from oxiray import _missing

__getattr__ = _missing.attributes(__name__)
