"""Calls that are not wanted any more.

Invariants:
1. A cancelled call is interrupted by a `KeyboardInterrupt` in its own code, in the main thread, and nowhere else: the
   signal's handler asks the native side whether what runs at this moment is what was cancelled.
2. An interrupt that ends nothing, because it was raised in a destructor or a callback whose errors Python only
   reports, is raised again.
3. A worker whose call was interrupted while it imported a module runs no other call: a part of what that module imports stays
   loaded, and the next import of it may fail ("partially initialized module").
"""

from __future__ import annotations

import _signal  # Python's own, without the enumerations that `signal` makes of what it returns
import sys
from typing import Any

from oxiray import _core, _session
from oxiray._core import ObjectRef, ObjectRefGenerator
from oxiray.exceptions import TaskCancelledError


#: Set on the `KeyboardInterrupt` that a cancelled call meets.
_MARK = "oxiray_cancelled"


def cancel(ray_waitable: Any, *, force: bool = False, recursive: bool = True) -> None:
    """Cancels the call that makes the value of a reference; returns at once.

    A call that has not started does not start. In a task that runs, `KeyboardInterrupt` is raised; with `force`, its process
    is killed. A method of an actor that runs can look at `get_runtime_context().is_canceled()`; in an async method
    `asyncio.CancelledError` is raised. With `recursive`, the calls that it made are cancelled too. `get()` of the reference
    raises `TaskCancelledError`; for a generator, this error is the last item, and earlier items stay. A call that has ended
    is not changed. Cancelled calls are not retried.

    Raises `TypeError` if the argument is not a reference, and `ValueError` for `force` with a method of an actor.
    """
    _session.ensure()
    if isinstance(ray_waitable, ObjectRefGenerator):
        ray_waitable = ray_waitable.completed()
    if not isinstance(ray_waitable, ObjectRef):
        raise TypeError(
            f"ray.cancel() only supported for object refs. For actors, try ray.kill(). Got: {type(ray_waitable)}. Cancel each "
            "of several references by itself"
        )
    _core.cancel(ray_waitable, bool(force), bool(recursive))


def listen(number: int) -> None:
    """From here on signal `number` asks whether the call that runs is to be interrupted."""
    _signal.signal(number, _asked)
    sys.unraisablehook = _Reporter(sys.unraisablehook)


def _asked(number: int, frame: Any) -> None:
    if _core.take_interrupt():
        if _is_importing(frame):
            _core.become_unfit()
        # No name of this frame may refer to it: the frame is part of its traceback, and with it the arguments of the
        # interrupted call would be kept until Python looks for cycles, which it does not in a worker that is idle.
        raise _interrupt()


def _is_importing(frame: Any) -> bool:
    """Whether an import is under way in this frame or one that called it."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _interrupt() -> KeyboardInterrupt:
    interrupt = KeyboardInterrupt("cancel() was called for this task")
    setattr(interrupt, _MARK, True)
    return interrupt


class _Reporter:
    """Reports errors that nobody can catch, as was done before, but for interrupts: those come again."""

    def __init__(self, before: Any) -> None:
        self._before = before

    def __call__(self, lost: Any) -> None:
        if hasattr(lost.exc_value, _MARK):
            _core.interrupt_again()
        else:
            self._before(lost)


def cancelled(task: str, text: str) -> TaskCancelledError:
    """The error of a call that was cancelled; `task` is its identifier in hexadecimal digits."""
    return TaskCancelledError(task, text)


def as_cancelled(error: BaseException, task: str) -> BaseException:
    """What a caller is to see of `error`: interrupts of any kind mean that the call was cancelled."""
    if hasattr(error, _MARK):
        return cancelled(task, "cancel() interrupted it")
    if isinstance(error, KeyboardInterrupt):
        return cancelled(task, "its code raised KeyboardInterrupt")
    # Looked up, never imported: where asyncio was not loaded, nothing can be of its kinds.
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and isinstance(error, asyncio.CancelledError):
        return cancelled(task, "its coroutine was cancelled")
    return error
