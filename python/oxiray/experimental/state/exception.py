"""`ray.util.state.exception` under its older name, for compatibility."""

from __future__ import annotations

from oxiray import _missing
from oxiray.util.state.exception import RayStateApiException

__all__ = ["RayStateApiException"]

__getattr__ = _missing.attributes(__name__)
