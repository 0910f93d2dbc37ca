"""News from the runtime: workers' output, notices, errors nobody looked at, values that futures wait for.

One daemon thread per connection waits for news in the native side and hands each on. It is started by
`init`, in a worker by the first call it makes or the first future.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oxiray import _core, _repeats
from oxiray.exceptions import TaskCancelledError

if TYPE_CHECKING:
    import asyncio
    import concurrent.futures

logger = logging.getLogger("oxiray")

# What the garbage collector runs while it is held may ask for news too.
_lock = threading.RLock()
_thread: threading.Thread | None = None
_waiting: dict[bytes, list[Callable[[], None]]] = {}
#: Who is to be told when nothing here refers to an object any more.
_watching: dict[bytes, list[Callable[[bytes], None]]] = {}


#: What the thread prints with.
_printer: _Printer | None = None

#: Who is given a kind of news besides its being shown (`lines`, `notice`): the kind, what is called, and what when none comes any more.
_listening: list[tuple[str, Callable[..., None], Callable[[], None]]] = []

#: Whether the lines of workers are shown with whose they are; structured logs say it themselves.
_with_names = True


#: Whether the program ends the connection: what is not there by then never comes.
_is_leaving = False


def start(*, with_names: bool = True) -> None:
    """Starts the thread, once a connection."""
    global _thread, _with_names, _is_leaving
    if _thread is not None:
        return
    _with_names = with_names
    _divide_lines()
    thread = threading.Thread(target=_serve, name="oxiray-news", daemon=True)
    with _lock:
        if _thread is None:
            _thread = thread
            _is_leaving = False
            thread.start()


#: Streams whose lines are whole when they are written, so that others may be written between them.
_divided: list[Any] = []


def _divide_lines() -> None:
    """Has a submitted job's program print each line in one piece, since what its workers print goes to the same file.

    Its streams are unbuffered, so that the file has what the program printed before it was killed: without this, each
    argument of a `print` is a piece of its own.
    """
    if "OXIRAY_SUBMISSION_ID" in os.environ:
        for stream in (sys.stdout, sys.stderr):
            if getattr(stream, "write_through", False) and stream not in _divided:
                stream.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
                _divided.append(stream)


def finish(timeout: float) -> None:
    """Waits until the last news was handed on, or `timeout` seconds."""
    global _thread, _is_leaving
    with _lock:
        thread, _thread = _thread, None
        _is_leaving = True
    if thread is not None and thread is not threading.current_thread():
        thread.join(timeout)


def own_threads() -> set[int | None]:
    """The threads that print news, by their identifiers; what others asked to be called for runs in the first, too."""
    thread, printer = _thread, _printer
    timer = None if printer is None else printer.timer
    return {one.ident for one in (thread, timer) if one is not None}


def calls_somebody() -> bool:
    """Whether somebody is called when a value is there, or when an object ends."""
    return bool(_waiting or _watching)


def forget() -> None:
    """In a forked child there is no such thread, and nobody is left who could release a lock that was held."""
    global _thread, _lock, _printer
    _lock = threading.RLock()
    _thread = _printer = None
    _waiting.clear()
    _watching.clear()
    _listening.clear()


def _serve() -> None:
    global _printer
    _printer = printer = _Printer()
    try:
        _tell_news(printer)
    finally:
        printer.finish()
        with _lock:
            ended = [end for _, _, end in _listening]
            _listening.clear()
        for end in ended:
            end()


def _tell_news(printer: _Printer) -> None:
    while True:
        try:
            kind, *rest = _core.next_news()
        except RuntimeError:
            return
        _let_hear(kind, rest)
        if kind == "lines":
            printer.take(*rest)
        elif kind == "notice":
            _write(sys.stderr, f"(oxiray) {rest[0]}\n")
        elif kind == "preempted":
            from oxiray import _preemption

            _preemption.heard(*rest)
        elif kind == "unseen":
            report_unseen(rest[0])
        elif kind == "ready":
            _act(rest[0])
        elif kind == "ended":
            _tell_of_end(rest[0])
        else:
            for identifier in list(_waiting):
                _act(identifier)
            return
        # What was told of must not live until there is something else to tell.
        del rest


def listen(kind: str, act: Callable[..., None], ended: Callable[[], None]) -> Callable[[], None]:
    """Calls `act` with each piece of news of this kind, before it is shown, and `ended` when the connection ends; returns what ends that."""
    entry = (kind, act, ended)
    with _lock:
        _listening.append(entry)

    def end() -> None:
        with _lock:
            if entry in _listening:
                _listening.remove(entry)

    return end


def _let_hear(kind: str, told: list[Any]) -> None:
    if not _listening:
        return
    with _lock:
        acts = [act for wanted, act, _ in _listening if wanted == kind]
    for act in acts:
        try:
            act(*told)
        except Exception:
            logger.exception("what listens to the news of this program failed")


def report_unseen(error: BaseException | None) -> None:
    """Tells of a task's error whose reference was dropped before anybody looked at it."""
    if error is None or isinstance(error, TaskCancelledError) or "RAY_IGNORE_UNHANDLED_ERRORS" in os.environ:
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


class _Printer:
    """Shows what workers print, and what several of them print once."""

    def __init__(self) -> None:
        self._repeats = _repeats.configured()
        self._lock = threading.Lock()
        #: Runs while something is held back.
        self.timer: threading.Timer | None = None

    def take(self, pid: int, name: str, is_error: bool, lines: bytes, ip: str) -> None:
        found = [_repeats.Line(pid, name, is_error, line, ip) for line in lines.decode("utf-8", "replace").splitlines()]
        with self._lock:
            if self._repeats is not None:
                found = [shown for line in found for shown in self._repeats.shown(line)]
                self._look_again()
            _print_lines(found)

    def finish(self) -> None:
        with self._lock:
            if self.timer is not None:
                self.timer.cancel()
            if self._repeats is not None:
                _print_lines(self._repeats.rest())

    def _look_again(self) -> None:
        wait_s = None if self._repeats is None else self._repeats.wait_s()
        if wait_s is None or self.timer is not None:
            return
        self.timer = threading.Timer(wait_s, self._tell_due)
        self.timer.daemon = True
        self.timer.start()

    def _tell_due(self) -> None:
        with self._lock:
            self.timer = None
            if self._repeats is not None:
                _print_lines(self._repeats.due())
            self._look_again()


def _print_lines(lines: list[_repeats.Line]) -> None:
    """Prints them in pieces of one stream each, since two writes may be far apart on a terminal."""
    for is_error, same in itertools.groupby(lines, key=lambda line: line.is_error):
        _write(sys.stderr if is_error else sys.stdout, "".join(f"{_prefix(line)}{line.text}\n" for line in same))


def _prefix(line: _repeats.Line) -> str:
    if not _with_names:
        return ""
    place = f", ip={line.ip}" if line.ip else ""
    prefix = f"({line.name} pid={line.pid}{place})" if line.name else f"(pid={line.pid}{place})"
    return f"\033[36m{prefix}\033[0m " if _colored() else f"{prefix} "


def _colored() -> bool:
    choice = os.environ.get("RAY_COLOR_PREFIX")
    if choice is not None:
        return choice == "1"
    return bool(getattr(sys.stdout, "isatty", lambda: False)())


def _write(stream: Any, text: str) -> None:
    try:
        if stream in _divided:
            # Not through the stream, which may hold the beginning of a line.
            rest = text.encode("utf-8", "replace")
            while rest:
                rest = rest[os.write(stream.fileno(), rest) :]
            return
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


def when_ended(reference: Any, act: Callable[[bytes], None], *, kept: tuple[str, int] | None = None) -> bool:
    """Calls `act` with the object's identifier, in another thread, when nothing in this process refers to it any more.

    With what is kept for a stored object until then, a device and bytes: when nobody anywhere refers to it any more. False where
    this process does not own the object, and then nothing is called.
    """
    start()
    identifier: bytes = reference.binary()
    with _lock:
        _watching.setdefault(identifier, []).append(act)
        if _core.watch(reference) if kept is None else _core.keep_on_device(reference, *kept):
            return True
        _watching.pop(identifier)
        return False


def _tell_of_end(identifier: bytes) -> None:
    with _lock:
        told = _watching.pop(identifier, [])
    for act in told:
        try:
            act(identifier)
        except Exception:
            logger.exception("what was to be called at the end of object %s failed", identifier.hex())


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


def on_completed(reference: Any, callback: Callable[[Any], Any]) -> None:
    """Calls `callback` in another thread with the value, or with the exception that it is; what it raises is logged.

    Where the program has ended its connection before, nobody is called.
    """

    def settle() -> None:
        if _is_leaving:
            return
        try:
            value = _core.get_one(reference)
        except Exception as error:
            value = error
        try:
            callback(value)
        except Exception:
            logger.exception("what was to be called with the value of %s failed", reference)

    when_ready(reference, settle)


def on_ready(reference: Any, callback: Callable[[BaseException | None], Any]) -> Callable[[], None]:
    """Calls `callback(None)` in another thread once the value is there, or the error that it is; nothing of it is fetched.

    Called with an exception where the connection ends before; what it raises is logged. Returns what calls that off.
    """
    waits = [True]

    def act() -> None:
        if not waits:
            return
        waits.clear()
        try:
            callback(ConnectionError("the connection ended before the value was there") if _is_leaving else None)
        except Exception:
            logger.exception("what was to be called when %s is ready failed", reference)

    when_ready(reference, act)
    return waits.clear


def event_loop() -> asyncio.AbstractEventLoop:
    """The loop that runs in this thread, else the one that was made its own, else a new one that becomes so."""
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        pass
    try:
        loop = asyncio.get_event_loop_policy().get_event_loop()
    except RuntimeError:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    return loop


def as_future(reference: Any) -> asyncio.Future[Any]:
    """A future of the value in the event loop that runs, else in that of this thread."""
    return _future_in_loop(reference, lambda: _core.get_one(reference))


def as_future_of_itself(reference: Any) -> asyncio.Future[Any]:
    """A future of the reference, when its value is there, or the error that it is; nothing of it is fetched."""
    return _future_in_loop(reference, lambda: reference)


def _future_in_loop(reference: Any, take: Callable[[], Any]) -> asyncio.Future[Any]:
    loop = event_loop()
    answer = loop.create_future()

    def settle() -> None:
        if answer.done():
            return
        try:
            answer.set_result(take())
        except BaseException as error:
            answer.set_exception(error)

    def from_thread() -> None:
        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:
            pass  # the loop was closed; nobody waits any more

    when_ready(reference, from_thread)
    return answer
