"""The part of `torch.cuda` that is about which device is the current one."""

from __future__ import annotations

import torch


def is_available() -> bool:
    """Whether this process sees a device."""
    return bool(torch.visible_devices())


def set_device(device: torch.device) -> None:
    """Prints the physical device that is chosen. Raises where it is none that this process sees."""
    visible = torch.visible_devices()
    assert device.type == "cuda"
    if device.index is None or device.index >= len(visible):
        raise RuntimeError(f"CUDA error: invalid device ordinal {device.index} of {len(visible)}")
    print(f"set_device({device}) -> physical GPU {visible[device.index]}")


def empty_cache() -> None:
    """Has nothing to let go of."""
