"""Stands in for TensorFlow 1 in the seeds' programs: a session takes the devices it can see, as the real one does.

The real one would need a GPU and half a gigabyte of packages. What the programs show is which devices a session is
shown, and that is decided by `CUDA_VISIBLE_DEVICES` alone. Like the real one, it reads that variable once, when the
first session of the process is made, and logs a line per device.
"""

from __future__ import annotations

import functools
import os


@functools.cache
def _visible_devices() -> tuple[str, ...]:
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        raise RuntimeError("CUDA_VISIBLE_DEVICES is not set: this session would take every GPU of the machine")
    return tuple(filter(None, listed.split(",")))


class Session:
    """Takes every device the process can see."""

    def __init__(self) -> None:
        for index, physical in enumerate(_visible_devices()):
            print(f"Created TensorFlow device (GPU:{index} -> physical GPU {physical})")

    def list_devices(self) -> list[str]:
        """The devices of this session, named as TensorFlow names them."""
        return [f"/device:GPU:{index}" for index in range(len(_visible_devices()))]
