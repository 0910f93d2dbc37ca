"""What collective calls take: names of backends, reductions, and options."""

from __future__ import annotations

import importlib.util
from datetime import timedelta
from enum import Enum

#: No limit of its own: the group's limit holds.
unset_timeout_ms = timedelta(milliseconds=-1)


def torch_available() -> bool:
    """Whether PyTorch is installed."""
    return importlib.util.find_spec("torch") is not None


def cupy_available() -> bool:
    """Whether CuPy is installed. Nothing here needs it: NCCL is reached through PyTorch."""
    return importlib.util.find_spec("cupy") is not None


def in_capitals(backend: str) -> str:
    """The name of a backend as registries have it: in capitals, and `GLOO` for `torch_gloo`, as Ray called it once."""
    upper = backend.upper()
    return "GLOO" if upper == "TORCH_GLOO" else upper


class Backend:
    """The names of backends. `Backend("nccl")` is the name as it is written, in capitals.

    Raises `ValueError` for a name that is no backend's. Backends of others become names by `register_collective_backend`.
    """

    NCCL = "NCCL"
    GLOO = "GLOO"
    UNRECOGNIZED = "unrecognized"

    def __new__(cls, name: str) -> str:  # type: ignore[misc]
        found = getattr(cls, in_capitals(name), None)
        if not isinstance(found, str):
            known = sorted(name for name in vars(cls) if name.isupper() and name != "UNRECOGNIZED")
            raise ValueError(
                f"Unrecognized backend: '{name}'. There are {', '.join(known)}; others are made known by "
                "register_collective_backend()"
            )
        return found


class ReduceOp(Enum):
    """How the values of all members become one."""

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3


class AllReduceOptions:
    """Of `allreduce`. Options are attributes, as Ray's are."""

    reduceOp = ReduceOp.SUM
    timeout_ms = unset_timeout_ms


class BarrierOptions:
    """Of `barrier`."""

    timeout_ms = unset_timeout_ms


class ReduceOptions:
    """Of `reduce`. `root_tensor` counts the tensors of one process, of which there is one."""

    reduceOp = ReduceOp.SUM
    root_rank = 0
    root_tensor = 0
    timeout_ms = unset_timeout_ms


class AllGatherOptions:
    """Of `allgather`."""

    timeout_ms = unset_timeout_ms


class BroadcastOptions:
    """Of `broadcast`."""

    root_rank = 0
    root_tensor = 0
    timeout_ms = unset_timeout_ms


class ReduceScatterOptions:
    """Of `reducescatter`."""

    reduceOp = ReduceOp.SUM
    timeout_ms = unset_timeout_ms


class SendOptions:
    """Of `send`."""

    dst_rank = 0
    dst_gpu_index = 0
    n_elements = 0
    timeout_ms = unset_timeout_ms


class RecvOptions:
    """Of `recv`."""

    src_rank = 0
    src_gpu_index = 0
    n_elements = 0
    timeout_ms = unset_timeout_ms
