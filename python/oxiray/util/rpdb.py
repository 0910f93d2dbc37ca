"""Ray's names for breakpoints in tasks and actors; `oxiray debug` is where they are debugged."""

from __future__ import annotations

from oxiray import _missing
from oxiray._debugger import is_post_mortem as _is_ray_debugger_post_mortem_enabled
from oxiray._debugger import post_mortem_of_now as _post_mortem
from oxiray._debugger import set_trace

__all__ = ["_is_ray_debugger_post_mortem_enabled", "_post_mortem", "set_trace"]

__getattr__ = _missing.attributes(__name__)
