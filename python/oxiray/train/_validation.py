"""Checkpoints that are validated: by the program's own function, in a task beside the training, one at a time.

Invariants:
1. Validations begin in the order in which their checkpoints were reported.
2. A checkpoint whose validation is not over is not removed, and is validated by a later run if this one ends first.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any

from oxiray import _api, exceptions
from oxiray._cancellation import cancel
from oxiray.train._configs import ReportedCheckpointStatus as Status
from oxiray.train._configs import ValidationConfig
from oxiray.train._kept import Entry, Kept
from oxiray.util._explain import explain

#: What has not begun by then is explained, in seconds.
_FIRST_WORD_S = 5.0
#: Between two words on one that still waits, in seconds.
_WORDS_EVERY_S = 60.0


class Validations:
    """The validations of one `fit()`: those that wait, and the one that runs."""

    def __init__(self, config: ValidationConfig | None, work: bytes, kept: Kept, say: Callable[[str], None]) -> None:
        self._config = config
        self._work = work
        self._kept = kept
        self._say = say
        self._task = _api.remote(_validate).options(**config.ray_remote_kwargs) if config is not None else None
        self._running: tuple[Any, Entry, float | None] | None = None
        #: When it is looked whether it waits for room, and that is said.
        self._word_at: float | None = None

    @property
    def references(self) -> list[Any]:
        """What a wait for news includes."""
        return [self._running[0]] if self._running is not None else []

    def seconds(self) -> float | None:
        """After how long `proceed` is due though nothing happened; None for never."""
        if self._running is None:
            return None
        due = [at for at in (self._running[2], self._word_at) if at is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def proceed(self) -> list[Entry]:
        """Sees to the validation that runs, and begins the next where it is over; those that are over."""
        over = []
        while self._running is not None and (self._is_over() or _is_past(self._running[2])):
            over.append(self._end())
            self._begin()
        if _is_past(self._word_at):
            self._say_what_it_waits_for()
        if self._running is None:
            self._begin()
        return over

    def finish(self) -> list[Entry]:
        """Waits until nothing is left to validate; those that were."""
        over = self.proceed()
        while self._running is not None:
            _api.wait(self.references, timeout=self.seconds())
            over += self.proceed()
        return over

    def stop(self) -> None:
        """Ends the validation that runs; it is due again."""
        if self._running is not None:
            cancel(self._running[0], force=True)
            self._running = self._word_at = None

    def _is_over(self) -> bool:
        return bool(_api.wait(self.references, timeout=0)[0])

    def _say_what_it_waits_for(self) -> None:
        assert self._running is not None, "a word is due of what runs"
        reference, entry, _ = self._running
        reason = explain(reference)
        self._word_at = time.monotonic() + _WORDS_EVERY_S if reason["waits"] else None
        if reason["waits"]:
            lines = [f"{node['address']}: {node['why']}" for node in reason["nodes"] if node["why"]]
            self._say(
                f"the validation of checkpoint {entry.name} has not begun: {'; '.join([reason['reason'], *lines])}. It needs "
                "room beside the workers, and ValidationConfig(ray_remote_kwargs) says how much"
            )

    def _begin(self) -> None:
        if self._config is None or self._task is None:
            return
        entry = next((one for one in self._kept.entries if one.validation is not None), None)
        if entry is None:
            return
        defaults, asked = self._config.task_config, entry.validation
        own: dict[str, Any] = asked if isinstance(asked, dict) else {}
        arguments = {**(defaults.fn_kwargs or {}), **(own.get("fn_kwargs") or {})}
        limit = own.get("timeout_s") if own else defaults.timeout_s
        reference = self._task.remote(self._work, self._kept.checkpoint(entry), arguments)
        now = time.monotonic()
        self._running, self._word_at = (reference, entry, None if limit is None else now + limit), now + _FIRST_WORD_S

    def _end(self) -> Entry:
        assert self._running is not None, "it was looked at just now"
        reference, entry, _ = self._running
        self._running = self._word_at = None
        metrics: dict[str, Any] = {}
        if not _api.wait([reference], timeout=0)[0]:
            cancel(reference, force=True)
            status = Status.VALIDATION_TIMEOUT
            self._say(f"the validation of checkpoint {entry.name} took longer than its timeout_s, and was ended")
        else:
            try:
                metrics, status = _api.get(reference), Status.VALIDATED
            except exceptions.RayError as error:
                status = Status.VALIDATION_FAILED
                self._say(f"the validation of checkpoint {entry.name} failed: {error}")
        self._kept.validated(entry, status.value, metrics)
        return entry


def _is_past(at: float | None) -> bool:
    return at is not None and time.monotonic() >= at


def _validate(work: bytes, checkpoint: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    found = pickle.loads(work)(checkpoint, **arguments)
    if not isinstance(found, dict):
        raise ValueError(f"a validation function returns a dictionary of metrics, and this one returned a {type(found).__name__}")
    return found
