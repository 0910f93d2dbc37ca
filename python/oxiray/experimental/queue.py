"""`ray.util.queue` under its older name, for compatibility."""

from __future__ import annotations

from oxiray import _missing
from oxiray.util.queue import Empty, Full, Queue

__all__ = ["Empty", "Full", "Queue"]

__getattr__ = _missing.attributes(__name__)
