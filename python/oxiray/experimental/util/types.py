"""Names of reductions, as collective operations take them. For compatibility."""

from __future__ import annotations

import enum

from oxiray import _missing


class ReduceOp(enum.Enum):
    """How the values of several processes become one."""

    SUM = 0
    PRODUCT = 1
    MAX = 2
    MIN = 3
    AVG = 4


__all__ = ["ReduceOp"]

__getattr__ = _missing.attributes(__name__)
