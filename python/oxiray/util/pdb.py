"""Another name that Ray has for `util.rpdb`."""

from __future__ import annotations

from oxiray import _missing
from oxiray.util.rpdb import _is_ray_debugger_post_mortem_enabled, _post_mortem, set_trace

__all__ = ["_is_ray_debugger_post_mortem_enabled", "_post_mortem", "set_trace"]

__getattr__ = _missing.attributes(__name__)
