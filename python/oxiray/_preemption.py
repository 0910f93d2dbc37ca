"""That this worker is to end early, for what is more urgent: who is told of it, and what follows.

Tasks, actors and placement groups made with `preemptible=True` end early where the cluster was started with `--preemption=on`
and something of a higher priority waits for what they hold.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from dataclasses import dataclass
from typing import Any

from oxiray import _core

logger = logging.getLogger("oxiray")


@dataclass(frozen=True)
class Preemption:
    """This worker is to end early."""

    #: Seconds until it is killed at the latest.
    deadline_s: float
    #: For what.
    reason: str


_changed = threading.Condition()
#: Whether the actor's `on_preempt` was called since the worker was told.
_was_called = False


def current(timeout_s: float) -> Preemption | None:
    """What was told, after a wait for that of at most so many seconds."""
    end = time.monotonic() + timeout_s
    with _changed:
        while (told := _core.preempted()) is None:
            left = end - time.monotonic()
            if left <= 0:
                return None
            _changed.wait(min(left, threading.TIMEOUT_MAX))
    return Preemption(*told)


def heard(is_preempted: bool, ends_now: bool) -> None:
    """The worker is to end early, is to end by itself now, or goes on after all. Called from the thread that hands on news."""
    global _was_called
    with _changed:
        _changed.notify_all()
    if not is_preempted:
        _was_called = False
        return
    is_actor = _core.context()["actor_id"] is not None
    if ends_now and not is_actor:
        os.kill(os.getpid(), signal.SIGTERM)
    elif is_actor and not _was_called:
        _was_called = True
        threading.Thread(target=_call_actor, name="oxiray-on-preempt", daemon=True).start()


def _call_actor() -> None:
    """Calls the actor's `on_preempt()`, where it has one, and ends the process when that has returned."""
    from oxiray import _worker

    actor = _worker._actor
    on_preempt: Any = getattr(actor, "on_preempt", None)
    if not callable(on_preempt):
        return
    loops = _worker._event_loops
    try:
        if loops is None:
            on_preempt()
        else:
            loops.run(on_preempt)
    except Exception:
        logger.exception("on_preempt() of the actor raised an exception. The actor goes on until the grace is over")
        return
    if _core.preempted() is not None:
        _worker.flush()
        os._exit(128 + signal.SIGTERM)
