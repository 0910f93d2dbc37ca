"""Names of Ray's private modules that programs and their tests import, for compatibility: where they mean something here."""

from __future__ import annotations

from oxiray import _missing

__getattr__ = _missing.attributes(__name__)
