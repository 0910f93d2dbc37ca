"""Results as they come, from references or from a function and what to call it with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import oxiray

#: How many results are waited for at a time.
CHUNK_SIZE = 10
#: How many calls may be under way.
BACKPRESSURE_SIZE = 100


def as_completed(
    refs: Sequence[Any], *, chunk_size: int = CHUNK_SIZE, yield_obj_refs: bool = False, **kwargs: Any
) -> Iterator[Any]:
    """The values of `refs`, in chunks of those there first; with `yield_obj_refs`, the references themselves.

    `kwargs` are those of `wait`. Raises what the first failed task of a chunk raised.
    """
    _check(chunk_size, kwargs)
    return _in_chunks(list(refs), chunk_size, yield_obj_refs, kwargs)


def map_unordered(
    fn: Any,
    items: Iterable[Any],
    *,
    backpressure_size: int | None = BACKPRESSURE_SIZE,
    chunk_size: int = CHUNK_SIZE,
    yield_obj_refs: bool = False,
    **kwargs: Any,
) -> Iterator[Any]:
    """The results of the remote function `fn` for each of `items`, as they come.

    At most `backpressure_size` calls are under way, or any number with None; items are read as calls are made.
    """
    if backpressure_size is not None and backpressure_size < 1:
        raise ValueError(f"backpressure_size must be positive. It is {backpressure_size}, and at least 1 call must be under way")
    _check(chunk_size, kwargs)
    return _mapped(fn, items, backpressure_size, chunk_size, yield_obj_refs, kwargs)


def _check(chunk_size: int, kwargs: dict[str, Any]) -> None:
    if chunk_size < 1:
        raise ValueError(f"`chunk_size` must be >= 1. It is {chunk_size}")
    if "num_returns" in kwargs:
        raise ValueError("Use the `chunk_size` argument instead of `num_returns`")


def _mapped(
    fn: Any, items: Iterable[Any], limit: int | None, chunk_size: int, yield_obj_refs: bool, kwargs: dict[str, Any]
) -> Iterator[Any]:
    under_way: list[Any] = []
    for item in items:
        under_way.append(fn.remote(item))
        while limit is not None and len(under_way) >= limit:
            chunk, under_way = _next_chunk(under_way, chunk_size, yield_obj_refs, kwargs)
            yield from chunk
    yield from _in_chunks(under_way, chunk_size, yield_obj_refs, kwargs)


def _in_chunks(refs: list[Any], chunk_size: int, yield_obj_refs: bool, kwargs: dict[str, Any]) -> Iterator[Any]:
    while refs:
        chunk, refs = _next_chunk(refs, chunk_size, yield_obj_refs, kwargs)
        yield from chunk


def _next_chunk(
    refs: list[Any], chunk_size: int, yield_obj_refs: bool, kwargs: dict[str, Any]
) -> tuple[list[Any], list[Any]]:
    ready, rest = oxiray.wait(refs, num_returns=min(chunk_size, len(refs)), **kwargs)
    return (ready if yield_obj_refs else oxiray.get(ready)), rest
