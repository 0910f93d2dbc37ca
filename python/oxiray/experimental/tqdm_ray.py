"""Progress bars of tasks and actors: lines of their output, which the driver shows like any other.

Purpose: a bar that redraws itself cannot be told apart from the bars of other processes. Here each says where it is
in a line of its own, at most once in `flush_interval_s` seconds, and once when it is done.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any


class tqdm:
    """Counts steps and prints how far they are.

    `total` is how many there are, where that is known; `position` is where a bar of Ray's
    stands on a terminal: here bars are lines, one after the other. Iterating over it counts one step an item.
    """

    def __init__(
        self,
        iterable: Iterable[Any] | None = None,
        desc: str | None = None,
        total: int | None = None,
        unit: str | None = None,
        position: int | None = None,
        flush_interval_s: float | None = None,
    ) -> None:
        self._iterable = iterable
        self._desc = desc or ""
        self._unit = unit or "it"
        self.total = len(iterable) if total is None and hasattr(iterable, "__len__") else total  # type: ignore[arg-type]
        self.n = 0
        self._interval_s = 1.0 if flush_interval_s is None else flush_interval_s
        self._shown_at = time.monotonic()
        self._shown_n = -1
        self._is_closed = False

    def set_description(self, desc: str) -> None:
        """Says what the steps are, from the next line on."""
        self._desc = desc

    def update(self, n: int = 1) -> None:
        """Counts `n` steps more."""
        self.n += n
        self.refresh()

    def refresh(self) -> None:
        """Prints where it is, unless it did a short while ago."""
        if time.monotonic() - self._shown_at >= self._interval_s:
            self._show()

    def close(self) -> None:
        """Prints where it ended; once."""
        if not self._is_closed:
            self._is_closed = True
            if self.n != self._shown_n:
                self._show()

    def _show(self) -> None:
        self._shown_at, self._shown_n = time.monotonic(), self.n
        of = "" if self.total is None else f"/{self.total}"
        what = f"{self._desc}: " if self._desc else ""
        print(f"{what}{self.n}{of} {self._unit}", file=sys.stderr, flush=True)

    def __iter__(self) -> Iterator[Any]:
        if self._iterable is None:
            raise ValueError("this tqdm was made without an iterable: call update(n) for each step")
        for item in self._iterable:
            yield item
            self.update()
        self.close()


def safe_print(*args: Any, **kwargs: Any) -> None:
    """`print`; there is no bar here that it could tear."""
    print(*args, **kwargs)
