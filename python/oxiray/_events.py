"""News from the runtime: workers' output, notices, errors nobody looked at, values that futures wait for.

One daemon thread per connection waits for news in the native side and hands each on. It is started by
`init`, in a worker by the first call it makes or the first future.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oxiray import _core

if TYPE_CHECKING:
    import asyncio
    import concurrent.futures

logger = logging.getLogger("oxiray")

# What the garbage collector runs while it is held may ask for news too.
_lock = threading.RLock()
_thread: threading.Thread | None = None
_waiting: dict[bytes, list[Callable[[], None]]] = {}


def start() -> None:
    """Starts the thread, once a connection."""
    global _thread
    if _thread is not None:
        return
    thread = threading.Thread(target=_serve, name="oxiray-news", daemon=True)
    with _lock:
        if _thread is None:
            _thread = thread
            thread.start()


def finish(timeout: float) -> None:
    """Waits until the last news was handed on, or `timeout` seconds."""
    global _thread
    with _lock:
        thread, _thread = _thread, None
    if thread is not None and thread is not threading.current_thread():
        thread.join(timeout)


def forget() -> None:
    """In a forked child there is no such thread, and nobody is left who could release a lock that was held."""
    global _thread, _lock
    _lock = threading.RLock()
    _thread = None
    _waiting.clear()


def _serve() -> None:
    while True:
        try:
            kind, *rest = _core.next_news()
        except RuntimeError:
            return
        if kind == "lines":
            _print_lines(*rest)
        elif kind == "notice":
            _write(sys.stderr, f"(oxiray) {rest[0]}\n")
        elif kind == "unseen":
            report_unseen(rest[0])
        elif kind == "ready":
            _act(rest[0])
        else:
            for identifier in list(_waiting):
                _act(identifier)
            return
        # What was told of must not live until there is something else to tell.
        del rest


def report_unseen(error: BaseException | None) -> None:
    """Tells of a task's error whose reference was dropped before anybody looked at it."""
    if error is None or "RAY_IGNORE_UNHANDLED_ERRORS" in os.environ:
        return
    # Programs and tests replace the handler in the module that has its name in Ray.
    named = sys.modules.get("oxiray._private.worker")
    handler = getattr(named, "_unhandled_error_handler", unhandled_error_handler)
    try:
        handler(error)
    except Exception:
        logger.exception("the handler of unhandled errors failed")


def unhandled_error_handler(error: BaseException) -> None:
    """What is done with an error that nobody looked at, unless it is replaced."""
    logger.error(f"Unhandled error (suppress with 'RAY_IGNORE_UNHANDLED_ERRORS=1'): {error}")


def _act(identifier: bytes) -> None:
    for act in _take(identifier):
        act()


def _take(identifier: bytes) -> list[Callable[[], None]]:
    with _lock:
        return _waiting.pop(identifier, [])


def _print_lines(pid: int, name: str, is_error: bool, lines: bytes) -> None:
    prefix = f"({name} pid={pid}) " if name else f"(pid={pid}) "
    if _colored():
        prefix = f"\033[36m{prefix.rstrip()}\033[0m "
    text = lines.decode("utf-8", "replace")
    stream = sys.stderr if is_error else sys.stdout
    _write(stream, "".join(prefix + line for line in text.splitlines(keepends=True)))


def _colored() -> bool:
    choice = os.environ.get("RAY_COLOR_PREFIX")
    if choice is not None:
        return choice == "1"
    return bool(getattr(sys.stdout, "isatty", lambda: False)())


def _write(stream: Any, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError, AttributeError):
        pass  # a closed or missing stream has no reader


def when_ready(reference: Any, act: Callable[[], None]) -> None:
    """Calls `act` once the value of `reference` is there, from any thread."""
    when_told(reference.binary(), lambda: _core.announce(reference), act)


def when_told(identifier: bytes, ask: Callable[[], bool], act: Callable[[], None]) -> None:
    """Calls `act` at the news of `identifier` that `ask` asks for, from any thread; at once where `ask` says there is none to come."""
    start()
    with _lock:
        _waiting.setdefault(identifier, []).append(act)
    if not ask():
        for act in _take(identifier):
            act()


def future(reference: Any) -> concurrent.futures.Future[Any]:
    """A future of the value; cancelling it does not cancel the task."""
    import concurrent.futures

    answer: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def settle() -> None:
        if not answer.set_running_or_notify_cancel():
            return
        try:
            answer.set_result(_core.get_one(reference))
        except BaseException as error:
            answer.set_exception(error)

    when_ready(reference, settle)
    return answer


def as_future(reference: Any) -> asyncio.Future[Any]:
    """A future of the value in the running event loop."""
    import asyncio

    loop = asyncio.get_running_loop()
    answer = loop.create_future()

    def settle() -> None:
        if answer.done():
            return
        try:
            answer.set_result(_core.get_one(reference))
        except BaseException as error:
            answer.set_exception(error)

    def from_thread() -> None:
        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:
            pass  # the loop was closed; nobody waits any more

    when_ready(reference, from_thread)
    return answer
