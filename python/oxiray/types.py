"""Ray's name for the module that types of references are imported from."""

from __future__ import annotations

from oxiray import _missing
from oxiray._core import ObjectRef

__all__ = ["ObjectRef"]

__getattr__ = _missing.attributes(__name__)
