"""`ray.util.state.state_cli` under its older name, for compatibility."""

from __future__ import annotations

from oxiray import _missing
from oxiray.util.state.state_cli import *  # noqa: F403

__getattr__ = _missing.attributes(__name__)
