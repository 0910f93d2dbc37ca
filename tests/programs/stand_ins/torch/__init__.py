"""Stands in for PyTorch in the seeds' programs: devices are those of `CUDA_VISIBLE_DEVICES`, and calls are printed.

The real one would need GPUs and gigabytes of packages; `tests/train` runs it on the CPU. What the programs show is
which devices a worker is given, and what it asks PyTorch for.
"""

from __future__ import annotations

import os

from torch import cuda as cuda, distributed as distributed


class device:  # noqa: N801  PyTorch's name
    """A device by its name, as `cuda:0`."""

    def __init__(self, name: str) -> None:
        self.type, _, number = name.partition(":")
        self.index = int(number) if number else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __repr__(self) -> str:
        return f"device(type={self.type!r}, index={self.index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


def visible_devices() -> list[str]:
    """The physical devices that this process sees."""
    return [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]


def set_num_threads(count: int) -> None:
    """There are no threads to set."""
