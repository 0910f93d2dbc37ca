"""What Ray Serve asks of the tracing of calls."""

from __future__ import annotations

from typing import Any

from oxiray import _tracing


def _is_tracing_enabled() -> bool:
    return _tracing.is_on


class _DictPropagator:
    """The context of the current span as a dictionary."""

    @staticmethod
    def inject_current_context() -> dict[Any, Any]:
        """That of this thread."""
        return dict(_tracing.context())
