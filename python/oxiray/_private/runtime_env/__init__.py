"""What tests of programs take from Ray about runtime environments. For compatibility."""

from __future__ import annotations

from oxiray import _missing

__getattr__ = _missing.attributes(__name__)
