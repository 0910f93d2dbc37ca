"""Where references are made: recorded where the variable RAY_record_ref_creation_sites says so, since it costs time."""

from __future__ import annotations

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
#: The most frames that are told.
_FRAMES_MAX = 8


def here(how: str) -> str:
    """`(how) file:function:line | ...`: the program's innermost frames, without those of this package."""
    frame = sys._getframe(1) if hasattr(sys, "_getframe") else None
    places: list[str] = []
    while frame is not None and len(places) < _FRAMES_MAX:
        code = frame.f_code
        if not code.co_filename.startswith(_HERE):
            places.append(f"{code.co_filename}:{code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return " | ".join([f"({how})", *places])
