"""Saying a thing once.

Purpose: warn about something met in a loop without flooding the log.
"""

from __future__ import annotations

import threading
import time

#: Most keys remembered; past it every new key counts as said already.
KEYS_MAX = 100_000
#: How long a key stays said under `enable_periodic_logging`.
PERIOD_S = 60.0

_lock = threading.Lock()
_said: set[str] = set()
_disabled = False
_periodic = False
_period_start = 0.0


def log_once(key: str) -> bool:
    """Whether this is the first time `key` is asked about (in this period)."""
    global _period_start
    with _lock:
        if _disabled:
            return False
        now = time.monotonic()
        if _periodic and now - _period_start > PERIOD_S:
            _said.clear()
            _period_start = now
        if key in _said or len(_said) >= KEYS_MAX:
            return False
        _said.add(key)
        return True


def disable_log_once_globally() -> None:
    """Make `log_once` answer False from now on."""
    global _disabled
    with _lock:
        _disabled = True


def enable_periodic_logging() -> None:
    """Let every key be said again after a minute."""
    global _periodic, _period_start
    with _lock:
        _periodic = True
        _period_start = time.monotonic()


def reset_log_once(key: str | None = None) -> None:
    """Forget that `key`, or every key, was said."""
    with _lock:
        if key is None:
            _said.clear()
        else:
            _said.discard(key)
