"""The logger of the package and its handler, under Ray's name for the module. For compatibility."""

from __future__ import annotations

import logging

from oxiray import _missing
from oxiray._logging import _OwnHandler as PlainRayHandler

logger = logging.getLogger("ray")
#: Where structured logs have the nanosecond of a record.
INTERNAL_TIMESTAMP_LOG_KEY = "_ray_timestamp_ns"

__all__ = ["INTERNAL_TIMESTAMP_LOG_KEY", "PlainRayHandler", "logger"]

__getattr__ = _missing.attributes(__name__)
