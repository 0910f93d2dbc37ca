"""Whether this interpreter belongs to a virtual environment."""

from __future__ import annotations

import sys

from oxiray import _missing


def is_in_virtualenv() -> bool:
    """Whether this interpreter belongs to a virtual environment."""
    return sys.base_prefix != sys.prefix


__all__ = ["is_in_virtualenv"]

__getattr__ = _missing.attributes(__name__)
