"""Generators of references, under Ray's name for their module. For compatibility."""

from __future__ import annotations

from oxiray import _missing
from oxiray._core import ObjectRefGenerator
from oxiray._gathering import DynamicObjectRefGenerator

__all__ = ["DynamicObjectRefGenerator", "ObjectRefGenerator"]

__getattr__ = _missing.attributes(__name__)
