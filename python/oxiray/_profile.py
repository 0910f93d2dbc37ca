"""What the threads of this process do over a time, for whoever asks the cluster: see `crates/python/src/profile.rs`.

Stacks are sampled by a thread of the native side, which has the interpreter for each sample. What a thread computes is read
from the kernel's account of it, so that time in native code counts, whether or not the code holds the interpreter.
"""

from __future__ import annotations

import linecache
import os
import sys
import threading
import time
import tracemalloc
from types import CodeType, FrameType

#: The most frames of a stack: the innermost.
_FRAMES_MAX = 100
#: The most stacks that are told: fewer than `Profile::STACKS_MAX` in `oxiray-wire`, for the native side may add one.
_STACKS_MAX = 1_990
#: The most letters of a name.
_NAME_MAX = 500
#: The most letters of a line of source that stands for what is called in it.
_LINE_MAX = 100

#: The thread's name, of each frame, innermost first, function, file and line, and microseconds or bytes.
_Weighed = tuple[str, list[tuple[str, str, int]], int]
#: Code and the place in it, of each frame, the innermost first.
_Key = tuple[CodeType | int, ...]

#: What stands for the stacks that are left out, as on the native side.
_LEFT_OUT = [("(many stacks, each with little)", "", 0)]


class Sampler:
    """Where threads are, sample by sample, each weighed by the time since the last one."""

    def __init__(self, of_processor: bool) -> None:
        """Of what threads compute, or of all the time that passes."""
        self._of_processor = of_processor
        self._weights: dict[tuple[_Thread, _Key], int] = {}
        self._threads: dict[int, _Thread] = {}
        self._unknown = 0
        self._last_ns = time.monotonic_ns()
        self._meet(set(sys._current_frames()) - {threading.get_ident()})

    def sample(self) -> None:
        """Adds where threads are now.

        No other thread runs until their stacks are read, but where that takes longer than a switch interval. Nothing that gives
        the interpreter up (a file that is read, a lock) may come before: frames whose functions have returned meanwhile have lost
        their callers.
        """
        now = time.monotonic_ns()
        stacks = {ident: _key(frame) for ident, frame in sys._current_frames().items()}
        passed, self._last_ns = now - self._last_ns, now
        del stacks[threading.get_ident()]
        for gone in self._threads.keys() - stacks.keys():
            self._threads.pop(gone).close()
        if new := stacks.keys() - self._threads.keys():
            self._meet(new)
        for ident, stack in stacks.items():
            if (thread := self._threads.get(ident)) is None:
                continue
            if (computed := thread.computed_ns()) is None:
                # Another thread has its identity already.
                self._threads.pop(ident).close()
            elif weight := computed if self._of_processor else passed:
                self._weights[thread, stack] = self._weights.get((thread, stack), 0) + weight

    def result(self) -> tuple[list[_Weighed], str]:
        """The heaviest stacks, and what is missing in them."""
        for thread in self._threads.values():
            thread.close()
        sampled = sorted(self._weights.items(), key=lambda item: -item[1])
        told = [(thread.name, _described(key), weight // 1000) for (thread, key), weight in sampled[:_STACKS_MAX]]
        rest = sum(weight for _, weight in sampled[_STACKS_MAX:]) // 1000
        note = f"threads that Python's module threading does not know are left out: {self._unknown}"
        return _with_rest(told, rest), note if self._unknown else ""

    def _meet(self, idents: set[int]) -> None:
        main, known = threading.main_thread().ident, {thread.ident: thread for thread in threading.enumerate()}
        met = 0
        for ident in idents:
            # After a fork the main thread's own number is that of its parent's.
            if (thread := known.get(ident)) and (number := os.getpid() if ident == main else thread.native_id):
                self._threads[ident] = _Thread(thread.name, number)
                met += 1
        self._unknown = max(self._unknown, len(idents) - met)


class _Thread:
    """A thread, and how long it has computed."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self._computed = 0
        self._account, self._is_fine = _opened(f"/proc/self/task/{number}/schedstat"), True
        if self._account < 0:
            # Kernels without statistics of the scheduler, and sandboxes, count in ticks.
            self._account, self._is_fine = _opened(f"/proc/self/task/{number}/stat"), False
        self.computed_ns()

    def computed_ns(self) -> int | None:
        """Since the last time; nothing where the thread is over."""
        try:
            text = os.pread(self._account, 4096, 0)
        except OSError:
            return None
        if self._is_fine:
            computed = int(text.split()[0])
        else:
            # After the name, which may have spaces: the state is the third field, and time as user and as system the 14th and 15th.
            computed = sum(map(int, text.rpartition(b")")[2].split()[11:13])) * (10**9 // os.sysconf("SC_CLK_TCK"))
        passed, self._computed = computed - self._computed, computed
        return passed

    def close(self) -> None:
        if self._account >= 0:
            os.close(self._account)
            self._account = -1


def _opened(path: str) -> int:
    """Its descriptor, or -1."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _key(frame: FrameType | None) -> _Key:
    key: list[CodeType | int] = []
    while frame is not None and len(key) < 2 * _FRAMES_MAX:
        key += (frame.f_code, frame.f_lasti)
        frame = frame.f_back
    return tuple(key)


def _described(key: _Key) -> list[tuple[str, str, int]]:
    return [_place(code, at) for code, at in zip(key[::2], key[1::2], strict=True)]  # type: ignore[arg-type]


def _place(code: CodeType, at: int) -> tuple[str, str, int]:
    within = (line for begin, end, line in code.co_lines() if begin <= at < end and line is not None)
    name = getattr(code, "co_qualname", code.co_name)
    return name[:_NAME_MAX], code.co_filename[:_NAME_MAX], next(within, code.co_firstlineno)


class Memory:
    """What is allocated from here on and not freed, as far as Python's allocators and NumPy's tell `tracemalloc`."""

    def __init__(self) -> None:
        self._is_the_programs = tracemalloc.is_tracing()
        if not self._is_the_programs:
            tracemalloc.start(_FRAMES_MAX)

    def sample(self) -> None:
        """Nothing: each allocation is recorded when it happens."""

    def result(self) -> tuple[list[_Weighed], str]:
        """The heaviest places, and what is to be known of them."""
        try:
            ours = [tracemalloc.Filter(False, file) for file in (__file__, tracemalloc.__file__)]
            statistics = tracemalloc.take_snapshot().filter_traces(ours).statistics("traceback")
        finally:
            if not self._is_the_programs:
                tracemalloc.stop()
        told = [
            ("memory", [_line(frame.filename, frame.lineno) for frame in reversed(list(one.traceback)[-_FRAMES_MAX:])], one.size)
            for one in statistics[:_STACKS_MAX]
        ]
        rest = sum(one.size for one in statistics[_STACKS_MAX:])
        began = "the program traces its memory itself: all that it has allocated since it began to counts"
        return _with_rest(told, rest), began if self._is_the_programs else ""


def _line(file: str, line: int) -> tuple[str, str, int]:
    """A place where memory was allocated: of its function only the line is known."""
    return linecache.getline(file, line).strip()[:_LINE_MAX] or "(no source)", file[:_NAME_MAX], line


def _with_rest(told: list[_Weighed], rest: int) -> list[_Weighed]:
    return [*told, ("", _LEFT_OUT, rest)] if rest else told


def begin(kind: str) -> Sampler | Memory:
    """Begins a profile of `cpu`, `wall` or `memory`."""
    return Memory() if kind == "memory" else Sampler(of_processor=kind == "cpu")
