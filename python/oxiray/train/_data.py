"""Plain iterables as the datasets of a run.

Invariant: what is divided is divided by position: of `n` workers, worker `r` is given items `r`, `r + n`, ...
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from oxiray.train._configs import DataConfig


class Shard:
    """One worker's part of an iterable. It can be read again where the iterable can."""

    def __init__(self, data: Iterable[Any], rank: int, size: int) -> None:
        self._data = data
        self._rank = rank
        self._size = size

    def __iter__(self) -> Iterator[Any]:
        if _is_indexed(self._data):
            return (self._data[index] for index in range(self._rank, len(self._data), self._size))
        return itertools.islice(self._data, self._rank, None, self._size)

    def __len__(self) -> int:
        return len(range(self._rank, len(self._data), self._size))  # type: ignore[arg-type]

    def iter_rows(self) -> Iterator[Any]:
        """Its items."""
        return iter(self)

    def iter_batches(self, *, batch_size: int = 256, drop_last: bool = False) -> Iterator[list[Any]]:
        """Its items in lists of `batch_size`; the last may be shorter."""
        if batch_size < 1:
            raise ValueError(f"iter_batches(batch_size={batch_size}): a batch has at least one item")
        items = iter(self)
        while batch := list(itertools.islice(items, batch_size)):
            if drop_last and len(batch) < batch_size:
                return
            yield batch


def _is_indexed(data: Any) -> bool:
    # Datasets of PyTorch end at their length, not at an IndexError.
    return hasattr(data, "__getitem__") and hasattr(data, "__len__") and not hasattr(data, "keys")


def divided(datasets: dict[str, Any], config: DataConfig, rank: int, size: int) -> dict[str, Any]:
    """What one of `size` workers is given of each dataset: its part, or the whole where it is not to be divided."""
    return {name: Shard(data, rank, size) if config.splits(name) else data for name, data in datasets.items()}


def check(datasets: Any) -> dict[str, Any]:
    """The datasets given to a trainer. Raises `ValueError` for what cannot be iterated over."""
    for name, data in (datasets or {}).items():
        if not hasattr(data, "__iter__") and not _is_indexed(data):
            raise ValueError(
                f"datasets[{name!r}] is a {type(data).__name__}, which cannot be iterated over: give a list, an array, a "
                "torch Dataset, or another iterable"
            )
        if hasattr(data, "__next__"):
            raise ValueError(
                f"datasets[{name!r}] is an iterator, which cannot travel to the workers or be read twice: give a list, or an "
                "object whose __iter__ opens the data anew"
            )
    return dict(datasets or {})
