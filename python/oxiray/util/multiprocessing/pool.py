"""A pool of worker actors with the interface of Python's own pool of processes.

Invariants:
1. A closed pool starts nothing new, and its workers end after what they were given.
2. Workers run chunks in turn; one that ran `maxtasksperchild` chunks is replaced.
"""

from __future__ import annotations

import itertools
import logging
import os
import weakref
from collections.abc import Callable, Iterable, Sized
from types import TracebackType
from typing import Any, TypeVar

import oxiray
from oxiray.util.debug import log_once
from oxiray.util.multiprocessing.results import (
    AsyncResult,
    IMapIterator,
    OrderedIMapIterator,
    Outcome,
    PoolTaskError as PoolTaskError,
    UnorderedIMapIterator,
)

logger = logging.getLogger("oxiray")

Iterator_ = TypeVar("Iterator_", bound=IMapIterator)

#: Chunks that each worker gets of a `map` without `chunksize`: enough that a slow one does not hold up the rest.
_CHUNKS_PER_WORKER = 4


class _Worker:
    def __init__(self, initializer: Callable[..., Any] | None, initargs: tuple[Any, ...]) -> None:
        if initializer is not None:
            initializer(*initargs)

    def run(self, function: Callable[..., Any], chunk: list[tuple[Any, Any]]) -> list[Outcome]:
        outcomes = []
        for args, kwargs in chunk:
            try:
                outcomes.append(Outcome(function(*args, **kwargs), None))
            except Exception as error:
                outcomes.append(Outcome(None, error))
        return outcomes


class Pool:
    """Calls functions in `processes` actors, by default one for each CPU of the cluster.

    Each actor calls `initializer(*initargs)` first. Starts Oxiray, or connects to `ray_address`, where the
    program has not; `ray_remote_args` are options of the actors. `context` is accepted without effect.
    """

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., Any] | None = None,
        initargs: Iterable[Any] | None = None,
        maxtasksperchild: int | None = None,
        context: Any = None,
        ray_address: str | None = None,
        ray_remote_args: dict[str, Any] | None = None,
    ) -> None:
        if processes is not None and processes < 1:
            raise ValueError(f"Processes in the pool must be >0. It was asked for {processes}")
        if maxtasksperchild is not None and maxtasksperchild < 1:
            raise ValueError(f"Pool(maxtasksperchild={maxtasksperchild}): a process runs at least 1 task")
        if context is not None and log_once("pool_context"):
            logger.warning("Pool(context=...) is accepted without effect: how a process starts is the runtime's affair")
        self._initializer = initializer
        self._initargs = tuple(initargs or ())
        self._most_chunks = maxtasksperchild
        self._closed = False
        self._ended: list[Any] = []
        self._iterators: weakref.WeakSet[IMapIterator] = weakref.WeakSet()
        processes = _connect(processes, ray_address)
        self._worker_class: Any = oxiray.remote(**{"num_cpus": 0, **(ray_remote_args or {})})(_Worker)
        self._workers = [self._new_worker() for _ in range(processes)]
        self._ran = [0] * processes
        self._turns = itertools.cycle(range(processes))
        oxiray.get([worker.__ray_ready__.remote() for worker in self._workers])

    def _new_worker(self) -> Any:
        return self._worker_class.remote(self._initializer, self._initargs)

    def _submit(self, function: Callable[..., Any], chunk: list[tuple[Any, Any]]) -> Any:
        turn = next(self._turns)
        worker = self._workers[turn]
        reference = worker.run.remote(function, chunk)
        self._ran[turn] += 1
        if self._ran[turn] == self._most_chunks:
            self._ended.append(worker.__ray_terminate__.remote())
            self._workers[turn], self._ran[turn] = self._new_worker(), 0
        return reference

    def apply(
        self, func: Callable[..., Any], args: Iterable[Any] | None = None, kwargs: dict[str, Any] | None = None
    ) -> Any:
        """What `func(*args, **kwargs)` returns."""
        return self.apply_async(func, args, kwargs).get()

    def apply_async(
        self,
        func: Callable[..., Any],
        args: Iterable[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
        callback: Callable[[Any], Any] | None = None,
        error_callback: Callable[[BaseException], Any] | None = None,
    ) -> AsyncResult:
        """Calls `func(*args, **kwargs)`; a thread hands the result, or what was raised, to the callback for it."""
        self._check_running()
        call = (tuple(args or ()), kwargs or {})
        return AsyncResult([self._submit(func, [call])], callback, error_callback, single_result=True)

    def map(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = None) -> list[Any]:
        """The results of `func` for each item, in order. Raises the first error."""
        return list(self.map_async(func, iterable, chunksize).get())

    def map_async(
        self,
        func: Callable[[Any], Any],
        iterable: Iterable[Any],
        chunksize: int | None = None,
        callback: Callable[[list[Any]], Any] | None = None,
        error_callback: Callable[[BaseException], Any] | None = None,
    ) -> AsyncResult:
        """`map` that does not wait."""
        return self._spread(func, [((item,), {}) for item in iterable], chunksize, callback, error_callback)

    def starmap(
        self, func: Callable[..., Any], iterable: Iterable[Iterable[Any]], chunksize: int | None = None
    ) -> list[Any]:
        """The results of `func(*item)` for each item, in order. Raises the first error."""
        return list(self.starmap_async(func, iterable, chunksize=chunksize).get())

    def starmap_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        callback: Callable[[list[Any]], Any] | None = None,
        error_callback: Callable[[BaseException], Any] | None = None,
        chunksize: int | None = None,
    ) -> AsyncResult:
        """`starmap` that does not wait."""
        return self._spread(func, [(tuple(item), {}) for item in iterable], chunksize, callback, error_callback)

    def _spread(
        self,
        function: Callable[..., Any],
        calls: list[tuple[Any, Any]],
        chunksize: int | None,
        callback: Callable[[Any], Any] | None,
        error_callback: Callable[[BaseException], Any] | None,
    ) -> AsyncResult:
        self._check_running()
        size = self._chunksize(calls, chunksize)
        chunks = [calls[start : start + size] for start in range(0, len(calls), size)]
        return AsyncResult([self._submit(function, chunk) for chunk in chunks], callback, error_callback)

    def imap(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = 1
    ) -> OrderedIMapIterator:
        """The results of `func` for each item in order, reading items as workers become free."""
        return self._iterator(OrderedIMapIterator, func, iterable, chunksize)

    def imap_unordered(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = 1
    ) -> UnorderedIMapIterator:
        """The results of `func` for each item as they come, reading items as workers become free."""
        return self._iterator(UnorderedIMapIterator, func, iterable, chunksize)

    def _iterator(
        self, kind: type[Iterator_], function: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None
    ) -> Iterator_:
        self._check_running()
        size = self._chunksize(iterable, chunksize)
        calls: Iterable[tuple[Any, Any]] = (((item,), {}) for item in iterable)
        iterator = kind(lambda chunk: self._submit(function, chunk), calls, size, len(self._workers))
        self._iterators.add(iterator)
        return iterator

    def _chunksize(self, iterable: Iterable[Any], chunksize: int | None) -> int:
        if chunksize is None:
            items = len(iterable) if isinstance(iterable, Sized) else 1
            return max(1, -(-items // (len(self._workers) * _CHUNKS_PER_WORKER)))
        if chunksize < 1:
            raise ValueError(f"chunksize={chunksize}: a chunk has at least 1 item")
        return chunksize

    def _check_running(self) -> None:
        if self._closed:
            raise ValueError("Pool not running: it was closed; make another one")

    def __enter__(self) -> Pool:
        self._check_running()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.terminate()

    def close(self) -> None:
        """Takes no more calls; the workers end after those they have, what lazy iterators still hold included."""
        if self._closed:
            return
        self._closed = True
        for iterator in list(self._iterators):
            while iterator.submit_next():
                pass
        self._ended += [worker.__ray_terminate__.remote() for worker in self._workers]

    def terminate(self) -> None:
        """Ends the workers at once; calls under way fail."""
        self._closed = True
        for worker in self._workers:
            oxiray.kill(worker)

    def join(self) -> None:
        """Waits for the workers of a closed pool to end."""
        if not self._closed:
            raise ValueError("Pool is still running: close() or terminate() it before join()")
        if self._ended:
            oxiray.wait(self._ended, num_returns=len(self._ended))


def _connect(processes: int | None, address: str | None) -> int:
    """Makes sure that there is a cluster; returns how many processes the pool is to have."""
    if not oxiray.is_initialized():
        address = address or os.environ.get("RAY_ADDRESS") or None
        # The size of a cluster that exists is not ours to choose.
        oxiray.init(address=address, num_cpus=processes if address in (None, "local") else None)
    cpus = int(oxiray.cluster_resources().get("CPU", 0))
    if processes is None:
        processes = max(1, cpus)
    elif processes > cpus:
        raise ValueError(f"Tried to start a pool with {processes} processes on an existing ray cluster, but there are only {cpus} CPUs in the ray cluster.")
    return processes
