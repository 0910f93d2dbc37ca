"""Iterators whose items are made in actors, shard by shard, for compatibility: deprecated in Ray.

Invariants:
1. A transformation of a `ParallelIterator` runs in the actors of its shards, one of a `LocalIterator` where it is read.
2. Nothing is computed before somebody reads.
"""

from __future__ import annotations

import collections
import itertools
import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import oxiray
from oxiray import _missing
from oxiray.util.iter_metrics import MetricsContext, SharedMetrics

Transform = Callable[[Iterator[Any]], Iterator[Any]]


def from_items(items: list[Any], num_shards: int = 2, repeat: bool = False) -> ParallelIterator:
    """An iterator over these items, dealt out to the shards one by one; with `repeat` over and over."""
    shards: list[list[Any]] = [items[index::num_shards] for index in range(num_shards)]
    kind = f"{type(items[0]).__name__}, " if items else "None, "
    name = f"from_items[{kind}{len(items)}, shards={num_shards}{', repeat=True' if repeat else ''}]"
    return from_iterators(shards, repeat=repeat, name=name)


def from_range(n: int, num_shards: int = 2, repeat: bool = False) -> ParallelIterator:
    """An iterator over the numbers below `n`, a stretch of them in each shard."""
    size = n // num_shards
    ends = [(index * size, n if index == num_shards - 1 else (index + 1) * size) for index in range(num_shards)]
    name = f"from_range[{n}, shards={num_shards}{', repeat=True' if repeat else ''}]"
    return from_iterators([range(start, end) for start, end in ends], repeat=repeat, name=name)


def from_iterators(generators: list[Any], repeat: bool = False, name: str | None = None) -> ParallelIterator:
    """An iterator with a shard for each of these iterables, or functions that return one."""
    worker = oxiray.remote(ParallelIteratorWorker)
    actors = [worker.remote(generator, repeat) for generator in generators]
    return from_actors(actors, name or f"from_iterators[shards={len(generators)}{', repeat=True' if repeat else ''}]")


def from_actors(actors: list[Any], name: str | None = None) -> ParallelIterator:
    """An iterator with a shard for each of these actors, whose classes derive from `ParallelIteratorWorker`."""
    return ParallelIterator([_ActorSet(actors, [])], name or f"from_actors[shards={len(actors)}]", [])


def _mapped(function: Callable[[Any], Any]) -> Transform:
    return lambda items: (function(item) for item in items)


def _filtered(function: Callable[[Any], Any]) -> Transform:
    return lambda items: (item for item in items if function(item))


class _NextValueNotReady(Exception):
    """What an iterator may yield to say that it has nothing yet. Libraries that make such iterators name it."""


def _batched(count: int) -> Transform:
    def transform(items: Iterator[Any]) -> Iterator[Any]:
        while batch := list(itertools.islice(items, count)):
            yield batch

    return transform


def _shuffled(buffer_size: int, seed: int | None) -> Transform:
    def transform(items: Iterator[Any]) -> Iterator[Any]:
        chance = random.Random(seed)
        buffer: list[Any] = []
        for item in items:
            buffer.append(item)
            if len(buffer) >= buffer_size:
                yield buffer.pop(chance.randint(0, len(buffer) - 1))
        while buffer:
            yield buffer.pop(chance.randint(0, len(buffer) - 1))

    return transform


def _flattened(items: Iterator[Any]) -> Iterator[Any]:
    return itertools.chain.from_iterable(items)


class _Transformable:
    """What can be said of items one by one."""

    name: str

    def _with(self, transform: Transform, name: str) -> Any:
        raise NotImplementedError

    def for_each(self, fn: Callable[[Any], Any], max_concurrency: int = 1, resources: Any = None) -> Any:
        """`fn(item)` for each item. Raises `ValueError` for any `max_concurrency` but 1: items are computed in their order."""
        if max_concurrency != 1 or resources is not None:
            raise ValueError(
                f"for_each(max_concurrency={max_concurrency}, resources={resources}) is not in Oxiray, and "
                "ray.util.iter is deprecated: submit tasks and use ray.util.as_completed"
            )
        return self._with(_mapped(fn), ".for_each()")

    def filter(self, fn: Callable[[Any], bool]) -> Any:
        """The items for which `fn(item)` is true."""
        return self._with(_filtered(fn), ".filter()")

    def batch(self, n: int) -> Any:
        """Lists of `n` items; the last may have fewer."""
        return self._with(_batched(n), f".batch({n})")

    def flatten(self) -> Any:
        """The items of the items."""
        return self._with(_flattened, ".flatten()")

    def combine(self, fn: Callable[[Any], Iterable[Any]]) -> Any:
        """The items of `fn(item)`, for each item."""
        return self._with(lambda items: _flattened(_mapped(fn)(items)), ".combine()")


class ParallelIterator(_Transformable):
    """Items in shards, each in an actor. It is read through `gather_sync`, `gather_async`, or a shard of it."""

    def __init__(
        self, actor_sets: list[_ActorSet], name: str, parent_iterators: list[ParallelIterator]
    ) -> None:
        self.actor_sets = actor_sets
        self.name = name
        # Their actors make what this one passes on.
        self.parent_iterators = parent_iterators

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(
            "You must use it.gather_sync() or it.gather_async() to iterate over the results of a ParallelIterator."
        )

    def __repr__(self) -> str:
        return f"ParallelIterator[{self.name}]"

    def _with(self, transform: Transform, name: str) -> ParallelIterator:
        sets = [_ActorSet(one.actors, [*one.transforms, transform]) for one in self.actor_sets]
        return ParallelIterator(sets, self.name + name, self.parent_iterators)

    def transform(self, fn: Transform) -> ParallelIterator:
        """`fn(iterator)` in place of the iterator of each shard."""
        return self._with(fn, ".transform()")

    def local_shuffle(self, shuffle_buffer_size: int, seed: int | None = None) -> ParallelIterator:
        """The items of each shard in an order that is random among so many of them."""
        name = f".local_shuffle(shuffle_buffer_size={shuffle_buffer_size}, seed={seed})"
        return self._with(_shuffled(shuffle_buffer_size, seed), name)

    def repartition(self, num_partitions: int, batch_ms: int = 0) -> ParallelIterator:
        """The same items in so many shards, dealt out one by one."""
        parents = self._begun()

        def part(index: int) -> Callable[[], Iterator[Any]]:
            return lambda: _round_robin([_slice_of(parent, num_partitions, index, batch_ms) for parent in parents])

        name = f"{self.name}.repartition[num_partitions={num_partitions}]"
        made = from_iterators([part(index) for index in range(num_partitions)], name=name)
        made.parent_iterators = [self]
        return made

    def _begun(self) -> list[Any]:
        """The actors, which have begun to iterate."""
        actors = []
        for one in self.actor_sets:
            oxiray.get([actor.par_iter_init.remote(one.transforms) for actor in one.actors])
            actors += one.actors
        return actors

    def gather_sync(self) -> LocalIterator:
        """The items of all shards in turn, an item of each, waiting for it."""
        return self._local(lambda metrics: _synchronous(self._begun(), metrics), ".gather_sync()")

    def batch_across_shards(self) -> LocalIterator:
        """Lists of an item of each shard, as long as every shard has one."""
        return self._local(lambda _: _abreast(self._begun()), ".batch_across_shards()")

    def gather_async(self, batch_ms: int = 0, num_async: int = 1) -> LocalIterator:
        """The items of all shards as they come: what `batch_ms` milliseconds give at a time, and `num_async` requests ahead.

        Raises `ValueError` for less than one request, and for a time below zero.
        """
        if num_async < 1:
            raise ValueError("queue depth must be positive: num_async is how many requests each shard has at a time")
        _check_time(batch_ms)
        return self._local(lambda metrics: _asynchronous(self._begun(), batch_ms, num_async, metrics), ".gather_async()")

    def _local(self, read: Callable[[MetricsContext], Iterator[Any]], name: str) -> LocalIterator:
        metrics = SharedMetrics()
        return LocalIterator(lambda: read(metrics.get()), metrics, name=f"{self}{name}")

    def take(self, n: int) -> list[Any]:
        """The first `n` items of `gather_sync`."""
        return self.gather_sync().take(n)

    def show(self, n: int = 20) -> None:
        """Prints the first `n` items of `gather_sync`."""
        self.gather_sync().show(n)

    def union(self, other: ParallelIterator) -> ParallelIterator:
        """The shards of both. Raises `TypeError` for what is no `ParallelIterator`."""
        if not isinstance(other, ParallelIterator):
            raise TypeError(f"other must be of type ParallelIterator, got {type(other)}")
        sets = [*self.actor_sets, *other.actor_sets]
        return ParallelIterator(sets, f"ParallelUnion[{self}, {other}]", [*self.parent_iterators, *other.parent_iterators])

    def select_shards(self, shards_to_keep: list[int]) -> ParallelIterator:
        """Only the shards of these numbers, in the order that they have here.

        Raises `ValueError` where there are several sets of actors, as after `union`, and for no numbers.
        """
        if len(self.actor_sets) > 1:
            raise ValueError("select_shards() is not allowed after union(): select the shards of each before")
        if not shards_to_keep:
            raise ValueError("at least one shard must be selected")
        (one,) = self.actor_sets
        actors = [actor for index, actor in enumerate(one.actors) if index in shards_to_keep]
        name = f"{self.name}.select_shards({len(shards_to_keep)} total)"
        return ParallelIterator([_ActorSet(actors, one.transforms)], name, self.parent_iterators)

    def num_shards(self) -> int:
        """How many shards there are."""
        return sum(len(one.actors) for one in self.actor_sets)

    def shards(self) -> list[LocalIterator]:
        """An iterator over each shard."""
        return [self.get_shard(index) for index in range(self.num_shards())]

    def get_shard(self, shard_index: int, batch_ms: int = 0, num_async: int = 1) -> LocalIterator:
        """An iterator over one shard.

        Raises `ValueError` where there is none of this number, for less than one request, and for a time below zero.
        """
        if num_async < 1:
            raise ValueError("num async must be positive: it is how many requests the shard has at a time")
        _check_time(batch_ms)
        if not 0 <= shard_index < self.num_shards():
            raise ValueError(f"Shard index out of range: {shard_index} of {self.num_shards()}")
        found = [(actor, one.transforms) for one in self.actor_sets for actor in one.actors][shard_index]

        def read(metrics: MetricsContext) -> Iterator[Any]:
            actor, transforms = found
            oxiray.get(actor.par_iter_init.remote(transforms))
            return _asynchronous([actor], batch_ms, num_async, metrics)

        return self._local(read, f".shard[{shard_index}]")


class LocalIterator(_Transformable):
    """Items as this process reads them."""

    def __init__(
        self,
        base_iterator: Callable[[], Iterable[Any]],
        shared_metrics: SharedMetrics,
        local_transforms: list[Transform] | None = None,
        timeout: int | None = None,
        name: str | None = None,
    ) -> None:
        if timeout is not None:
            raise NotImplementedError(f"timeout={timeout!r}: an iterator waits for its next item. Read a slow one in a thread, or leave it out")
        self.base_iterator = base_iterator
        self.shared_metrics = shared_metrics
        self.local_transforms = local_transforms or []
        self.name = name or "unknown"
        self._built: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        if self._built is None:
            items = iter(self.base_iterator())
            for transform in self.local_transforms:
                items = iter(transform(items))
            self._built = items
        return self._built

    def __next__(self) -> Any:
        return next(iter(self))

    def __repr__(self) -> str:
        return f"LocalIterator[{self.name}]"

    def _with(self, transform: Transform, name: str) -> LocalIterator:
        return LocalIterator(
            self.base_iterator, self.shared_metrics, [*self.local_transforms, transform], name=self.name + name
        )

    def transform(self, fn: Transform) -> LocalIterator:
        """`fn(iterator)` in place of the iterator."""
        return self._with(fn, ".transform()")

    def shuffle(self, shuffle_buffer_size: int, seed: int | None = None) -> LocalIterator:
        """The items in an order that is random among so many of them."""
        return self._with(
            _shuffled(shuffle_buffer_size, seed), f".shuffle(shuffle_buffer_size={shuffle_buffer_size}, seed={seed})"
        )

    def zip_with_source_actor(self) -> LocalIterator:
        """Pairs of the actor that an item came from, and the item."""
        metrics = self.shared_metrics
        return self._with(lambda items: ((metrics.get().current_actor, item) for item in items), ".zip_with_source_actor()")

    def take(self, n: int) -> list[Any]:
        """The next `n` items."""
        return list(itertools.islice(self, n))

    def show(self, n: int = 20) -> None:
        """Prints the next `n` items."""
        for item in itertools.islice(self, n):
            print(item)

    def duplicate(self, n: int) -> list[LocalIterator]:
        """`n` iterators that each give every item. Raises `ValueError` for fewer than two."""
        if n < 2:
            raise ValueError(f"Number of copies must be >= 2, and is {n}")
        copies = itertools.tee(self, n)
        return [
            LocalIterator(lambda copy=copy: copy, SharedMetrics(parents=[self.shared_metrics]), name=f"{self.name}.duplicate[{index}]")  # type: ignore[misc]
            for index, copy in enumerate(copies)
        ]

    def union(
        self, *others: LocalIterator, deterministic: bool = False, round_robin_weights: list[float] | None = None
    ) -> LocalIterator:
        """The items of all in turn, of each as many as its weight says, by default one; "*" is all that it has.

        Of a weight such as 1.5 the half is one item in every second turn, by chance; a weight of zero takes nothing. The items
        come in that order with `deterministic` and without. Raises `ValueError` for what is no `LocalIterator`, and where there
        are not as many weights as iterators.
        """
        for other in others:
            if not isinstance(other, LocalIterator):
                raise ValueError(f"other must be of type LocalIterator, got {type(other)}")
        sources = [self, *others]
        weights = round_robin_weights or [1] * len(sources)
        if len(weights) != len(sources):
            raise ValueError(
                f"Length of round robin weights must equal number of iterators total: there are {len(weights)} weights for {len(sources)} iterators"
            )
        metrics = SharedMetrics(parents=[source.shared_metrics for source in sources])
        name = f"LocalUnion[{', '.join(map(str, sources))}]"
        return LocalIterator(lambda: _weighted([(iter(s), w) for s, w in zip(sources, weights)]), metrics, name=name)

    def get_metrics(self) -> MetricsContext:
        """What is counted besides the items."""
        return self.shared_metrics.get()


class ParallelIteratorWorker:
    """The actor of a shard. `item_generator` is an iterable, or a function that returns one; with `repeat` it begins anew."""

    def __init__(self, item_generator: Any, repeat: bool) -> None:
        self._source = item_generator
        self._repeats = repeat
        self._items: Iterator[Any] | None = None
        self._slices: dict[int, collections.deque[Any]] = {}

    def _all(self) -> Iterator[Any]:
        while True:
            yield from self._source() if callable(self._source) else self._source
            if not self._repeats:
                return

    def par_iter_init(self, transforms: list[Transform]) -> None:
        """Begins anew, with these transformations."""
        items = self._all()
        for transform in transforms:
            items = iter(transform(items))
        self._items = items
        self._slices = {}

    def par_iter_next(self) -> Any:
        """The next item. Raises `StopIteration` at the end."""
        assert self._items is not None, "must call par_iter_init()"
        return next(self._items)

    def par_iter_next_batch(self, batch_ms: int) -> list[Any]:
        """What `batch_ms` milliseconds give, one item at least. Raises `StopIteration` at the end."""
        return _within(batch_ms, self.par_iter_next)

    def par_iter_slice(self, step: int, start: int) -> Any:
        """The next of the items `start`, `start + step` and so on. Raises `StopIteration` at the end."""
        own = self._slices.setdefault(start, collections.deque())
        while not own:
            for index in range(step):
                self._slices.setdefault(index, collections.deque()).append(self.par_iter_next())
        return own.popleft()

    def par_iter_slice_batch(self, step: int, start: int, batch_ms: int) -> list[Any]:
        """What `batch_ms` milliseconds give of `par_iter_slice`, one item at least. Raises `StopIteration` at the end."""
        return _within(batch_ms, lambda: self.par_iter_slice(step, start))


class _ActorSet:
    """Actors that iterate with the same transformations."""

    def __init__(self, actors: list[Any], transforms: list[Transform]) -> None:
        self.actors = actors
        self.transforms = transforms


def _check_time(batch_ms: int) -> None:
    if batch_ms < 0:
        raise ValueError(f"batch time must be positive or zero: batch_ms is {batch_ms}")


def _within(batch_ms: int, read: Callable[[], Any]) -> list[Any]:
    items = [read()]
    until = time.monotonic() + batch_ms / 1000
    while time.monotonic() < until:
        try:
            items.append(read())
        except StopIteration:
            break
    return items


def _by_chance(weight: float) -> int:
    """A whole number that is `weight` on average."""
    whole = int(weight)
    return whole + (random.random() < weight - whole)


def _weighted(sources: list[tuple[Iterator[Any], Any]]) -> Iterator[Any]:
    # Nothing is ever taken of the others, which would be asked forever.
    sources = [(items, weight) for items, weight in sources if weight == "*" or weight > 0]
    while sources:
        for source in list(sources):
            items, weight = source
            count = None if weight == "*" else _by_chance(weight)
            given = 0
            for item in itertools.islice(items, count):
                given += 1
                yield item
            if count is None or given < count:
                sources.remove(source)


def _round_robin(sources: list[Iterator[Any]]) -> Iterator[Any]:
    return _weighted([(source, 1) for source in sources])


def _slice_of(actor: Any, step: int, start: int, batch_ms: int) -> Iterator[Any]:
    while True:
        try:
            batch = oxiray.get(actor.par_iter_slice_batch.remote(step, start, batch_ms))
        except StopIteration:
            return
        yield from batch


def _synchronous(actors: list[Any], metrics: MetricsContext) -> Iterator[Any]:
    asked = {actor: actor.par_iter_next.remote() for actor in actors}
    while asked:
        for actor, reference in list(asked.items()):
            try:
                item = oxiray.get(reference)
            except StopIteration:
                del asked[actor]
                continue
            asked[actor] = actor.par_iter_next.remote()
            metrics.current_actor = actor
            yield item


def _abreast(actors: list[Any]) -> Iterator[Any]:
    while True:
        try:
            row = oxiray.get([actor.par_iter_next.remote() for actor in actors])
        except StopIteration:
            return
        yield row


def _asynchronous(actors: list[Any], batch_ms: int, ahead: int, metrics: MetricsContext) -> Iterator[Any]:
    asked = {actor.par_iter_next_batch.remote(batch_ms): actor for actor in actors for _ in range(ahead)}
    while asked:
        (ready,), _ = oxiray.wait(list(asked))
        actor = asked.pop(ready)
        try:
            batch = oxiray.get(ready)
        except StopIteration:
            continue
        asked[actor.par_iter_next_batch.remote(batch_ms)] = actor
        metrics.current_actor = actor
        yield from batch


__all__ = [
    "LocalIterator",
    "ParallelIterator",
    "ParallelIteratorWorker",
    "from_actors",
    "from_items",
    "from_iterators",
    "from_range",
]

__getattr__ = _missing.attributes(__name__)
