"""Names of parametrized tests."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def named(value: object) -> str:
    """The name of a test by its value, the same in every process: test runners side by side compare them."""
    return _ADDRESS.sub("", str(value))
