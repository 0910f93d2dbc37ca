"""Defaults of actors, for compatibility."""

from __future__ import annotations

from oxiray import _missing

DEFAULT_MAX_CONCURRENCY_ASYNC = 1000

__getattr__ = _missing.attributes(__name__)
