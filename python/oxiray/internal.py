"""What Ray keeps for programs that manage memory by hand."""

from __future__ import annotations

from oxiray._private.internal_api import free

__all__ = ["free"]
