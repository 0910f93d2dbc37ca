"""The logger of the package, under Ray's name for the module. For compatibility."""

from __future__ import annotations

import logging

from oxiray import _missing

logger = logging.getLogger("ray")

__all__ = ["logger"]

__getattr__ = _missing.attributes(__name__)
