"""`ray.util.state` under its older name, for compatibility."""

from __future__ import annotations

from oxiray import _missing

__getattr__ = _missing.attributes(__name__)
