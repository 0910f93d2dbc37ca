"""What libraries ask of Ray's debugger, by another name that Ray has for it: see `util.rpdb`."""

from __future__ import annotations

from oxiray import _missing
from oxiray.util.rpdb import _is_ray_debugger_post_mortem_enabled


def _post_mortem() -> None:
    """Is never called, since no task waits for a debugger."""


__all__ = ["_is_ray_debugger_post_mortem_enabled"]

__getattr__ = _missing.attributes(__name__)
