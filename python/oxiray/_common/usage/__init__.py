"""Where Ray's libraries report how they are used to Ray's makers: here nothing is reported."""

from __future__ import annotations

from oxiray import _missing

__getattr__ = _missing.attributes(__name__)
