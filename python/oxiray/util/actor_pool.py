"""A pool of actors that share a stream of work.

Invariants:
1. An actor is idle or has one submission under way, and its next one begins when that was collected.
2. An actor that died stays out of the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import oxiray

Value = TypeVar("Value")


@dataclass(frozen=True)
class _Submission:
    actor: Any
    #: A reference, or several where the method has several results.
    result: Any

    def sentinel(self) -> Any:
        """What is there when the submission is done; the results of one call come together."""
        return self.result[0] if isinstance(self.result, list) else self.result


class ActorPool:
    """Hands values to whichever of `actors` is idle, and their results back.

    A submission is a function of an actor and a value that returns the reference of a call:
    `pool.map(lambda actor, value: actor.double.remote(value), [1, 2, 3])`.
    """

    def __init__(self, actors: Iterable[Any]) -> None:
        #: Named as Ray names it: libraries look at it.
        self._idle_actors = list(actors)
        #: What waits for an actor.
        self._pending_submits: list[tuple[Callable[[Any, Any], Any], Any]] = []
        self._under_way: dict[int, _Submission] = {}
        self._submitted = 0
        self._next_in_order = 0

    def map(self, fn: Callable[[Any, Value], Any], values: Iterable[Value]) -> Iterator[Any]:
        """The results for `values`, in their order. What was submitted before is given up, and its actors are used again."""
        while self.has_next():
            try:
                self._take(next(iter(self._under_way)), list(self._under_way), 0, True)
            except Exception:
                # Nobody asks any more how an earlier submission ended.
                continue
        self._submit_all(fn, values)
        return self._drain(self.get_next)

    def map_unordered(self, fn: Callable[[Any, Value], Any], values: Iterable[Value]) -> Iterator[Any]:
        """The results for `values` as they come. What was submitted before is finished and dropped."""
        while self.has_next():
            try:
                self.get_next_unordered()
            except Exception:
                # Nobody asks any more how an earlier submission ended.
                continue
        self._submit_all(fn, values)
        return self._drain(self.get_next_unordered)

    def _submit_all(self, fn: Callable[[Any, Value], Any], values: Iterable[Value]) -> None:
        self._next_in_order = self._submitted
        for value in values:
            self.submit(fn, value)

    def _drain(self, get: Callable[[], Any]) -> Iterator[Any]:
        while self.has_next():
            yield get()

    def submit(self, fn: Callable[[Any, Value], Any], value: Value) -> None:
        """Calls `fn(actor, value)` with an idle actor, now or as soon as there is one."""
        if not self._idle_actors:
            self._pending_submits.append((fn, value))
            return
        actor = self._idle_actors.pop()
        self._under_way[self._submitted] = _Submission(actor, fn(actor, value))
        self._submitted += 1

    def has_next(self) -> bool:
        """Whether a result is still to be collected."""
        return bool(self._under_way)

    def get_next(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """The next result in the order of submission.

        Raises `TimeoutError` past `timeout` seconds, and with `ignore_if_timedout` gives that submission up;
        `StopIteration` where none is left; `ValueError` where `get_next_unordered` took a later result already.
        """
        self._check_has_next()
        index = self._next_in_order
        if index not in self._under_way:
            raise ValueError(
                "It is not allowed to call get_next() after get_next_unordered(). It cannot tell what is next after a later result was taken"
            )
        return self._take(index, [index], timeout, ignore_if_timedout)

    def get_next_unordered(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """A result that is there, or the first to come. Raises as `get_next` does."""
        self._check_has_next()
        return self._take(next(iter(self._under_way)), list(self._under_way), timeout, ignore_if_timedout)

    def _check_has_next(self) -> None:
        if not self._under_way:
            raise StopIteration("No more results to get. Everything that was submitted to the pool was collected")

    def _take(self, oldest: int, candidates: list[int], timeout: float | None, ignore_if_timedout: bool) -> Any:
        """The result of the first of `candidates` that is done."""
        by_sentinel = {self._under_way[index].sentinel(): index for index in candidates}
        ready, _ = oxiray.wait(list(by_sentinel), num_returns=1, timeout=timeout)
        if not ready and not ignore_if_timedout:
            raise TimeoutError(f"no result of the pool was there within {timeout} s")
        index = by_sentinel[ready[0]] if ready else oldest
        submission = self._under_way.pop(index)
        self._next_in_order = max(self._next_in_order, index + 1)
        if not ready:
            self._give_back(submission.actor)
            raise TimeoutError(f"no result of the pool was there within {timeout} s; {submission.result} was given up")
        try:
            result = oxiray.get(submission.result)
        except oxiray.exceptions.ActorDiedError:
            self._start_waiting()
            raise
        except BaseException:
            self._give_back(submission.actor)
            raise
        self._give_back(submission.actor)
        return result

    def _give_back(self, actor: Any) -> None:
        self._idle_actors.append(actor)
        self._start_waiting()

    def _start_waiting(self) -> None:
        if self._pending_submits and self._idle_actors:
            self.submit(*self._pending_submits.pop(0))

    @property
    def _future_to_actor(self) -> dict[Any, tuple[int, Any]]:
        """What is under way, as libraries ask for it: the number of each submission and its actor, by its reference."""
        return {submission.sentinel(): (index, submission.actor) for index, submission in self._under_way.items()}

    def has_free(self) -> bool:
        """Whether an actor is idle and no submission waits for one."""
        return bool(self._idle_actors) and not self._pending_submits

    def pop_idle(self) -> Any:
        """An idle actor, which leaves the pool; None where there is none."""
        return self._idle_actors.pop() if self.has_free() else None

    def push(self, actor: Any) -> None:
        """Adds an actor. Raises `ValueError` where it is in the pool."""
        if actor in self._idle_actors or any(submission.actor == actor for submission in self._under_way.values()):
            raise ValueError(f"Actor already belongs to current ActorPool: {actor!r}")
        self._give_back(actor)
