"""`ray.util.multiprocessing` under its older name, for compatibility."""

from __future__ import annotations

from oxiray import _missing
from oxiray.util.multiprocessing import Pool, TimeoutError

__all__ = ["Pool", "TimeoutError"]

__getattr__ = _missing.attributes(__name__)
