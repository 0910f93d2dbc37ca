"""What is shown of a run while it goes on: lines on standard error.

Invariant: reports that come fast share a line a second; the last one before a silence of a second is shown late, with
the next, or at the end.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any

#: Between two lines on reports, in seconds.
_PAUSE_S = 1.0
_SHOWN_MAX = 6


class Progress:
    """Shows a run's reports and events."""

    def __init__(self, run: str, level: str) -> None:
        self._run = run
        self._level = getattr(logging, level)
        self._last_line = self._last_report = time.monotonic()
        self._since = 0
        self._waiting: tuple[int, dict[str, Any]] | None = None
        #: Says how much the devices of the workers are used; empty where nobody knows.
        self.use_of_devices: Callable[[], str] = str

    def say(self, text: str) -> None:
        """What needs attention."""
        if self._level <= logging.WARNING:
            self._print(text)

    def note(self, text: str) -> None:
        """What is good to know."""
        if self._level <= logging.INFO:
            self._print(text)

    def report(self, index: int, metrics: dict[str, Any]) -> None:
        """A report of rank 0."""
        self._since += 1
        self._waiting = (index, metrics)
        now = self._last_report = time.monotonic()
        if now - self._last_line >= _PAUSE_S:
            self.flush()

    def flush(self) -> None:
        """Shows the last report, where it was not shown."""
        if self._waiting is None or self._level > logging.INFO:
            return
        index, metrics = self._waiting
        step = (self._last_report - self._last_line) / self._since
        shown = [f"{name}={_short(value)}" for name, value in metrics.items() if _is_short(value)][:_SHOWN_MAX]
        each = f"{step * 1e3:.3g} ms" if step < 1 else f"{step:.3g} s"
        rate = f"{each} a report, {1 / step:.4g} a second" if step > 0 else ""
        use = self.use_of_devices()
        self._print(f"report {index}: {', '.join(filter(None, [rate, *shown]))}{f' ({use})' if use else ''}")
        self._waiting, self._since, self._last_line = None, 0, time.monotonic()

    def _print(self, text: str) -> None:
        print(f"(train {self._run}) {text}", file=sys.stderr, flush=True)


def _is_short(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= 40)


def _short(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
