"""`ray.util.state.common` under its older name, for compatibility."""

from __future__ import annotations

from oxiray import _missing
from oxiray.util.state.common import *  # noqa: F403

__getattr__ = _missing.attributes(__name__)
