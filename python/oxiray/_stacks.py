"""Where the threads and asyncio tasks of this process are, for whoever asks the cluster.

`taken` is called by a thread of the native side that has the interpreter, so that nothing moves meanwhile. Where it does not
get the interpreter, `faulthandler` writes the stacks of threads: see `crates/python/src/stacks.rs`.
"""

from __future__ import annotations

import faulthandler
import itertools
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

#: The most stacks of each kind, as `faulthandler` has it.
_STACKS_MAX = 100
#: The most frames of a stack, likewise.
_FRAMES_MAX = 100

#: Name, whether it is an asyncio task, and of each frame, innermost first: function, file, line.
_Stack = tuple[str, bool, list[tuple[str, str, int]]]


def listen(number: int, descriptor: int) -> int:
    """From here on signal `number` has the stacks of all threads written to a file. Returns the main thread's identity."""
    faulthandler.register(number, file=descriptor, all_threads=True, chain=False)
    return threading.main_thread().ident or 0


def taken() -> list[_Stack]:
    """The stacks of all threads but the calling one, the main one first, and of the asyncio tasks that wait."""
    own, main = threading.get_ident(), threading.main_thread().ident
    # The lock of that list may give the interpreter up: frames that return meanwhile lose their callers.
    named = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = {ident: frame for ident, frame in sys._current_frames().items() if ident != own}
    ordered = sorted(frames, key=lambda ident: ident != main)[:_STACKS_MAX]
    threads = [(named.get(ident) or f"thread {ident:#x}", False, _described(_called(frames[ident]))) for ident in ordered]
    loops = [loop for frame in frames.values() if (loop := _loop_of(frame)) is not None]
    return threads + list(itertools.islice(_tasks(loops), _STACKS_MAX))


def _called(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _described(frames: Iterator[FrameType]) -> list[tuple[str, str, int]]:
    most = itertools.islice(frames, _FRAMES_MAX)
    return [(frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno or 0) for frame in most]


def _loop_of(frame: FrameType) -> Any:
    """The event loop that a thread runs, where it runs one that is written in Python."""
    running = (call.f_locals.get("self") for call in _called(frame) if call.f_code.co_name == "run_forever")
    return next((loop for loop in running if hasattr(loop, "run_until_complete")), None)


def _tasks(loops: list[Any]) -> Iterator[_Stack]:
    # Nothing is imported here: another thread may be in the middle of that, and wait for what holds the interpreter.
    asyncio, worker = sys.modules.get("asyncio"), sys.modules.get("oxiray._worker")
    if asyncio is None:
        return
    own = [] if worker is None else worker.event_loops()
    for loop in {id(loop): loop for loop in [*loops, *own]}.values():
        for task in asyncio.all_tasks(loop):
            if waits := _described(reversed(list(_awaited(task.get_coro())))):
                yield task.get_name(), True, waits


def _awaited(awaited: Any) -> Iterator[FrameType]:
    """What a coroutine waits for, the outermost call first; nothing where it runs: then it is on its thread's stack."""
    for _ in range(_FRAMES_MAX):
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(awaited, f"{kind}_frame")), None)
        if kind is None or getattr(awaited, f"{kind}_running"):
            return
        if (frame := getattr(awaited, f"{kind}_frame")) is None:
            return
        yield frame
        awaited = getattr(awaited, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
