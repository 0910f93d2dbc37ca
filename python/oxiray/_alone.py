"""Whether the main thread is alone: whether nothing else in this process runs the user's code, now or by itself later.

Purpose: the head asks, before it takes a process that waits for one that never goes on.

Invariant: what is not known counts as somebody else.
"""

from __future__ import annotations

import signal
import sys
import threading

from oxiray import _events

_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def is_main_thread_alone() -> bool:
    """Whether no other thread runs Python but those that print news, nobody is called at news, and no alarm is set."""
    own = {threading.main_thread().ident, *_events.own_threads()}
    if _events.calls_somebody() or not own.issuperset(sys._current_frames()):
        return False
    return not any(signal.getitimer(timer)[0] for timer in _TIMERS)
