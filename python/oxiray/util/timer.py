"""A stopwatch, for compatibility."""

from __future__ import annotations

import time
from collections import deque

from oxiray import _missing


class _Timer:
    """Measures what stands in its `with`, and keeps the last `window_size` measurements."""

    def __init__(self, window_size: int = 10) -> None:
        self._times_s: deque[float] = deque(maxlen=window_size)
        self._units: deque[float] = deque(maxlen=window_size)
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.push(time.perf_counter() - self._started)

    def push(self, time_delta: float) -> None:
        """Adds a measurement, in seconds."""
        self._times_s.append(time_delta)

    def push_units_processed(self, n: float) -> None:
        """Says how much was done in the last measurement."""
        self._units.append(n)

    def has_units_processed(self) -> bool:
        """Whether it was said how much was done."""
        return bool(self._units)

    @property
    def mean(self) -> float:
        """The mean time in seconds."""
        return sum(self._times_s) / len(self._times_s) if self._times_s else 0.0

    @property
    def mean_units_processed(self) -> float:
        """How much was done in a measurement, on average."""
        return sum(self._units) / len(self._units) if self._units else 0.0

    @property
    def mean_throughput(self) -> float:
        """How much was done in a second, on average."""
        total = sum(self._times_s)
        return sum(self._units) / total if total else 0.0


__getattr__ = _missing.attributes(__name__)
