"""The few names of Ray's private modules that libraries rely on, where they mean something here.

Nothing here is promised: a program does better with the public API, which says the same.
"""

from __future__ import annotations

from oxiray import _missing

__getattr__ = _missing.attributes(__name__)
