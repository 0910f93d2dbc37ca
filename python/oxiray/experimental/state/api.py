"""`ray.util.state.api` under its older name, for compatibility."""

from __future__ import annotations

from oxiray import _missing
from oxiray.util.state.api import *  # noqa: F403
from oxiray.util.state.api import __all__ as __all__

__getattr__ = _missing.attributes(__name__)
