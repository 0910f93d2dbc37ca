"""What libraries ask of Ray's remote debugger, which is not in Oxiray: whether it waits where a task fails."""

from __future__ import annotations

from oxiray import _missing


def _is_ray_debugger_post_mortem_enabled() -> bool:
    """Whether a task that failed waits for a debugger: it never does."""
    return False


__getattr__ = _missing.attributes(__name__)
