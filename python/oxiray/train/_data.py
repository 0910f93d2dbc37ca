"""Plain iterables as the datasets of a run, told apart from datasets of Ray Data.

Invariant: what is divided is divided by position: of `n` workers, worker `r` is given items `r`, `r + n`, ...
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from oxiray.train import _ingest
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


def separated(datasets: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plain iterables of a trainer, and its datasets of Ray Data with the functions that make such."""
    of_data = {name: data for name, data in datasets.items() if _ingest.is_dataset(data) or not _is_iterable(data)}
    return {name: data for name, data in datasets.items() if name not in of_data}, of_data


def divided(datasets: dict[str, Any], config: DataConfig, rank: int, size: int) -> dict[str, Any]:
    """What one of `size` workers is given of each dataset: its part, or the whole where it is not to be divided."""
    return {name: Shard(data, rank, size) if config.splits(name) else data for name, data in datasets.items()}


def whole(datasets: dict[str, Any], size: int) -> dict[str, Any]:
    """Datasets of Ray Data for a function that runs in the driver, which reads them itself.

    Raises `ValueError` where there are several such processes: none of them is the one that would divide a dataset.
    """
    if datasets and size > 1:
        raise ValueError(
            f"datasets {', '.join(map(repr, datasets))} of Ray Data cannot be divided between the {size} processes of torchrun: "
            "set ScalingConfig(num_workers=...) to have workers of the cluster, or pass plain iterables"
        )
    return {name: _ingest.made(name, data) for name, data in datasets.items()}


def _is_iterable(data: Any) -> bool:
    return hasattr(data, "__iter__") or _is_indexed(data)


def check(datasets: Any) -> dict[str, Any]:
    """The datasets given to a trainer. Raises `ValueError` for what cannot be iterated over."""
    for name, data in (datasets or {}).items():
        if not (_ingest.is_dataset(data) or _is_iterable(data) or callable(data)):
            raise ValueError(
                f"datasets[{name!r}] is a {type(data).__name__}, which cannot be iterated over: give a list, an array, a "
                "torch Dataset, or another iterable; or a Dataset of Ray Data, or a function that makes one"
            )
        if hasattr(data, "__next__"):
            raise ValueError(
                f"datasets[{name!r}] is an iterator, which cannot travel to the workers or be read twice: give a list, or an "
                "object whose __iter__ opens the data anew"
            )
    return dict(datasets or {})
