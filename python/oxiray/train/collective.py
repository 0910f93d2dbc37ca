"""Calls that all ranks make together, without a backend."""

from __future__ import annotations

from typing import Any

from oxiray.train import _inside


def barrier() -> None:
    """Returns once every rank has called it."""
    _inside.meet("barrier", None)


def broadcast_from_rank_zero(data: Any) -> Any:
    """Rank 0's `data`, in every rank, once every rank has called it."""
    rank = _inside.current("broadcast_from_rank_zero").place.world_rank
    return _inside.meet("broadcast", data if rank == 0 else None)[0]


__all__ = ["barrier", "broadcast_from_rank_zero"]
