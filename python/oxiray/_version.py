"""Versions that programs ask for."""

from __future__ import annotations

from oxiray import _core

#: Oxiray's own version.
VERSION: str = _core.__version__
#: The Ray whose public API this speaks.
RAY_VERSION = "2.60.0"
RAY_COMMIT = "oxiray"
