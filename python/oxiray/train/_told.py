"""What a run tells its cluster of its reports: numbers, for the page's curves and the cluster's history.

Invariant: a run that reports fast tells the last of its numbers each `_PAUSE_S`, and at its end. What is told is a gauge,
which costs no message of its own.
"""

from __future__ import annotations

import math
import time
from typing import Any

from oxiray.util.metrics import Gauge

#: Between two times that numbers are told, in seconds.
_PAUSE_S = 5.0
#: How many numbers of a report are told, and how long their names are.
_NUMBERS_MAX = 14
_NAME_MAX = 32
#: The name by which the head knows them; `crates/head/src/training.rs` has it, and the tags.
_NAME = "train_report"
#: What stands for the number of a report, and of one whose checkpoint is kept; `crates/dashboard/src/page/runs.rs` has them too.
_REPORT, _CHECKPOINT = "report", "(checkpoint)"


class Told:
    """Tells of one run."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._gauge: Gauge | None = None
        self._last = -math.inf
        self._waiting: tuple[int, dict[str, Any]] | None = None
        self._kept: int | None = None

    def report(self, index: int, metrics: dict[str, Any], is_kept: bool = False) -> None:
        """A report of rank 0, and whether its checkpoint is kept."""
        self._waiting = (index, metrics)
        self._kept = index if is_kept else self._kept
        if time.monotonic() - self._last >= _PAUSE_S:
            self.flush()

    def flush(self) -> None:
        """Tells of the last report, where that was not told."""
        if self._waiting is None:
            return
        index, metrics = self._waiting
        self._waiting, self._last = None, time.monotonic()
        gauge = self._gauge = self._gauge or Gauge(_NAME, "What a training run reported last.", ("RunName", "Metric"))
        gauge.set(index, {"RunName": self._run, "Metric": _REPORT})
        if self._kept is not None:
            gauge.set(self._kept, {"RunName": self._run, "Metric": _CHECKPOINT})
            self._kept = None
        for name, value in numbers(metrics).items():
            gauge.set(value, {"RunName": self._run, "Metric": name})


def numbers(metrics: dict[str, Any]) -> dict[str, float]:
    """The finite numbers of a report, as many as are told."""
    found: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
            continue
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            continue
        if math.isfinite(number) and len(found) < _NUMBERS_MAX:
            found[str(name)[:_NAME_MAX] or "number"] = number
    return found
