"""What a pool's calls came to: now, later, or one after the other.

Invariants:
1. A call of a worker answers with one outcome for each item of its chunk, so that one item's error is its own.
2. Items of lazy iterators are read as workers become free, one chunk a worker at a time.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import TimeoutError
from typing import Any, NamedTuple

import oxiray

Submit = Callable[[list[Any]], Any]


class Outcome(NamedTuple):
    """What one item came to: a value, or what was raised."""

    value: Any
    error: BaseException | None

    def unwrap(self) -> Any:
        """The value; raises the error."""
        if self.error is not None:
            raise self.error
        return self.value


def outcomes_of(reference: Any) -> list[Outcome]:
    """The outcomes of a chunk whose call has ended; one error where the worker could not answer."""
    try:
        return list(oxiray.get(reference))
    except Exception as error:
        return [Outcome(None, error)]


class AsyncResult:
    """The results of calls that may still run."""

    def __init__(
        self,
        references: list[Any],
        callback: Callable[[Any], Any] | None = None,
        error_callback: Callable[[BaseException], Any] | None = None,
        single_result: bool = False,
    ) -> None:
        self._references = references
        self._single = single_result
        self._told: threading.Event | None = None
        if callback is not None or error_callback is not None:
            self._told = threading.Event()
            arguments = (self._told, callback, error_callback)
            threading.Thread(target=self._tell, args=arguments, name="oxiray-pool-callback", daemon=True).start()

    def _tell(
        self,
        told: threading.Event,
        callback: Callable[[Any], Any] | None,
        error_callback: Callable[[BaseException], Any] | None,
    ) -> None:
        try:
            try:
                value = self._collect()
            except Exception as error:
                if error_callback is not None:
                    error_callback(error)
            else:
                if callback is not None:
                    callback(value)
        finally:
            told.set()

    def _collect(self) -> Any:
        values = [outcome.unwrap() for reference in self._references for outcome in outcomes_of(reference)]
        return values[0] if self._single else values

    def _wait(self, timeout: float | None) -> bool:
        if timeout is not None:
            timeout = max(0, timeout)
        if self._told is not None:
            return self._told.wait(timeout)
        if not self._references:
            return True
        count = len(self._references)
        return len(oxiray.wait(self._references, num_returns=count, timeout=timeout)[0]) == count

    def wait(self, timeout: float | None = None) -> None:
        """Waits until everything ended and the callback ran, or for `timeout` seconds."""
        self._wait(timeout)

    def get(self, timeout: float | None = None) -> Any:
        """The result, or the list of results. Raises the first error, and `TimeoutError` past `timeout` seconds."""
        if not self._wait(timeout):
            raise TimeoutError(f"the pool's calls did not end within {timeout} s")
        return self._collect()

    def ready(self) -> bool:
        """Whether everything ended."""
        return self._wait(0)

    def successful(self) -> bool:
        """Whether nothing raised. Raises `ValueError` where something still runs."""
        if not self.ready():
            raise ValueError(f"{self!r} is not ready: wait() for it before asking whether it was successful")
        return all(outcome.error is None for reference in self._references for outcome in outcomes_of(reference))


class PoolTaskError(Exception):
    """What stands in `imap` for the result of a call that raised `underlying`: as in Ray, the others follow."""

    def __init__(self, underlying: BaseException) -> None:
        super().__init__(underlying)
        self.underlying = underlying


class IMapIterator:
    """Results one after the other; `next` takes a timeout."""

    def __init__(self, submit: Submit, iterable: Iterable[Any], chunksize: int, workers: int) -> None:
        self._submit = submit
        self._items = iter(iterable)
        self._chunksize = chunksize
        self._submitted = 0
        self._under_way: dict[Any, int] = {}
        self._ready: deque[Outcome] = deque()
        for _ in range(workers):
            self.submit_next()

    def submit_next(self) -> bool:
        """Hands out one more chunk; False where there is none."""
        chunk = list(itertools.islice(self._items, self._chunksize))
        if chunk:
            self._under_way[self._submit(chunk)] = self._submitted
            self._submitted += 1
        return bool(chunk)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.next()

    def next(self, timeout: float | None = None) -> Any:
        """The next result, which is a `PoolTaskError` where its call raised. Raises `TimeoutError` past `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._ready:
            if not self._under_way:
                raise StopIteration
            left = None if deadline is None else max(0, deadline - time.monotonic())
            done, _ = oxiray.wait(list(self._under_way), num_returns=1, timeout=left)
            if not done:
                raise TimeoutError(f"the next result of the pool was not there within {timeout} s")
            index = self._under_way.pop(done[0])
            self.submit_next()
            self._arrived(index, outcomes_of(done[0]))
        outcome = self._ready.popleft()
        return outcome.value if outcome.error is None else PoolTaskError(outcome.error)

    def _arrived(self, index: int, outcomes: list[Outcome]) -> None:
        raise NotImplementedError


class OrderedIMapIterator(IMapIterator):
    """Results in the order of their items."""

    def __init__(self, submit: Submit, iterable: Iterable[Any], chunksize: int, workers: int) -> None:
        self._next_index = 0
        self._early: dict[int, list[Outcome]] = {}
        super().__init__(submit, iterable, chunksize, workers)

    def _arrived(self, index: int, outcomes: list[Outcome]) -> None:
        self._early[index] = outcomes
        while self._next_index in self._early:
            self._ready.extend(self._early.pop(self._next_index))
            self._next_index += 1


class UnorderedIMapIterator(IMapIterator):
    """Results as they come."""

    def _arrived(self, index: int, outcomes: list[Outcome]) -> None:
        self._ready.extend(outcomes)
