"""Saying a thing once, and looking for code whose memory grows.

Purpose: warn about something met in a loop without flooding the log.
"""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import NamedTuple

#: How many calls deep a place that takes memory is told.
_FRAMES = 20
#: How straight the growth of a place has to be: the correlation of its memory with the number of the round.
_CORRELATION_MIN = 0.6
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


class Suspect(NamedTuple):
    """A place in a program whose memory grew from round to round."""

    traceback: tracemalloc.Traceback
    #: Bytes more at the end than at the beginning.
    memory_increase: int
    #: Bytes more with each round.
    slope: float
    #: The correlation of the bytes with the number of the round.
    rvalue: float
    #: The bytes after each round.
    hist: list[int]


def _test_some_code_for_memory_leaks(
    desc: str,
    init: Callable[[], None] | None,
    code: Callable[[], None],
    repeats: int,
    max_num_trials: int = 1,
    min_memory_increase: int = 0,
) -> list[Suspect]:
    """The places whose memory grows as `code` is run `repeats` times, those that grow by less than `min_memory_increase` bytes
    left out. Another trial, with more rounds, is made of what looks so, up to `max_num_trials`."""
    suspects: list[Suspect] = []
    for trial in range(max_num_trials):
        rounds = repeats * (trial + 1)
        print(f"{desc} {rounds} times.")
        history = _memory_by_place(init, code, rounds)
        found = [_judged(place, sizes, min_memory_increase) for place, sizes in history.items()]
        suspects = sorted((one for one in found if one is not None), key=lambda one: -one.memory_increase)
        if not suspects:
            break
    return suspects


def _memory_by_place(
    init: Callable[[], None] | None, code: Callable[[], None], rounds: int
) -> dict[tracemalloc.Traceback, list[int]]:
    """The bytes that each place holds after each round."""
    history: dict[tracemalloc.Traceback, list[int]] = {}
    tracemalloc.start(_FRAMES)
    try:
        if init is not None:
            init()
        for number in range(rounds):
            code()
            gc.collect()
            for row in tracemalloc.take_snapshot().statistics("traceback"):
                sizes = history.setdefault(row.traceback, [])
                sizes.extend([0] * (number - len(sizes)))
                sizes.append(row.size)
    finally:
        tracemalloc.stop()
    return history


def _judged(place: tracemalloc.Traceback, sizes: list[int], increase_min: int) -> Suspect | None:
    """A suspect, where the memory of a place grows along a line and does not shrink."""
    # What the measuring itself holds grows too.
    is_own = any(frame.filename == tracemalloc.__file__ or frame.filename == __file__ for frame in place[-1:])
    increase = sizes[-1] - sizes[0]
    if is_own or len(sizes) < 3 or increase <= increase_min:
        return None
    slope, correlation = _line(sizes)
    if slope <= 0 or correlation < _CORRELATION_MIN:
        return None
    return Suspect(place, increase, slope, correlation, sizes)


def _line(sizes: list[int]) -> tuple[float, float]:
    """The slope of the line through the sizes, and how well it fits them."""
    mean_x, mean_y = (len(sizes) - 1) / 2, sum(sizes) / len(sizes)
    xy = sum((x - mean_x) * (y - mean_y) for x, y in enumerate(sizes))
    xx = sum((x - mean_x) ** 2 for x in range(len(sizes)))
    yy = sum((y - mean_y) ** 2 for y in sizes)
    return xy / xx, xy / (xx * yy) ** 0.5 if yy else 0.0
