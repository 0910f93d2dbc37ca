"""Lines that several processes print: shown once, and a while later how often they came since.

Invariants:
1. What only one process prints is shown, however often.
2. A line that is held back is shown before its window is over, or counted in one that is.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

#: The most different lines that are remembered; the oldest are forgotten for newer ones.
_LINES_MAX = 10_000
_WITHOUT_DIGITS = str.maketrans("", "", "0123456789")
_HINT = " (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0 to disable log deduplication, or see docs/logs.md.)"


@dataclass(frozen=True)
class Line:
    """A line and who printed it."""

    pid: int
    name: str
    is_error: bool
    text: str
    #: The address of the node that it was printed on; empty for the driver's own.
    ip: str = ""


@dataclass
class _Seen:
    since: float
    last: Line
    processes: set[tuple[str, int]] = field(default_factory=set)
    held: int = 0


class Repeats:
    """Decides which lines are shown. Digits make no difference between lines."""

    def __init__(self, window_s: float, allowed: str | None, skipped: str | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._window_s = window_s
        self._allowed = re.compile(allowed) if allowed else None
        self._skipped = re.compile(skipped) if skipped else None
        self._clock = clock
        #: By when they came, the oldest first.
        self._seen: dict[str, _Seen] = {}
        self._is_explained = False

    def shown(self, line: Line) -> list[Line]:
        """What is to be shown now that this line came."""
        if self._allowed is not None and self._allowed.search(line.text):
            return [line]
        if self._skipped is not None and self._skipped.search(line.text):
            return []
        key = line.text.translate(_WITHOUT_DIGITS)
        if not key.strip():
            return [line]
        shown = self.due()
        seen = self._seen.setdefault(key, _Seen(self._clock(), line))
        seen.processes.add((line.ip, line.pid))
        if len(seen.processes) > 1:
            seen.held += 1
            seen.last = line
        else:
            shown.append(line)
        if len(self._seen) > _LINES_MAX:
            shown += self._let_go(next(iter(self._seen)))
        return shown

    def wait_s(self) -> float | None:
        """How long until something that is held back is due; None where nothing is."""
        since = next((seen.since for seen in self._seen.values() if seen.held), None)
        return None if since is None else max(since + self._window_s - self._clock(), 0.0)

    def due(self) -> list[Line]:
        """What was held back for as long as its window lasts."""
        shown: list[Line] = []
        while self._seen:
            key, seen = next(iter(self._seen.items()))
            if self._clock() - seen.since < self._window_s:
                break
            is_common = seen.held > 1
            shown += self._let_go(key)
            if is_common:
                # Others are likely to print it again: those are counted from the first on.
                self._seen[key] = _Seen(self._clock(), seen.last, seen.processes)
        return shown

    def rest(self) -> list[Line]:
        """All that is held back."""
        return [line for key in list(self._seen) for line in self._let_go(key)]

    def _let_go(self, key: str) -> list[Line]:
        seen = self._seen.pop(key)
        if seen.held < 2:
            return [seen.last] * seen.held
        hint, self._is_explained = "" if self._is_explained else _HINT, True
        last = seen.last
        return [replace(last, text=f"{last.text} [repeated {seen.held}x across cluster]{hint}")]


def configured() -> Repeats | None:
    """As the environment of the program asks; None where every line is to be shown."""
    if os.environ.get("RAY_DEDUP_LOGS", "1") == "0":
        return None
    return Repeats(
        float(os.environ.get("RAY_DEDUP_LOGS_AGG_WINDOW_S", "5")),
        os.environ.get("RAY_DEDUP_LOGS_ALLOW_REGEX"),
        os.environ.get("RAY_DEDUP_LOGS_SKIP_REGEX"),
    )
