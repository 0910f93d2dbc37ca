"""Which devices are this worker's."""

from __future__ import annotations

from typing import Any

from oxiray import _core, _families
from oxiray.train import _inside


def get_device() -> Any:
    """This worker's device: the first it was granted, and the CPU where it was granted none."""
    return get_devices()[0]


def get_devices() -> list[Any]:
    """This worker's devices, as PyTorch numbers those that the process sees."""
    import torch

    session = _inside.current("get_devices")
    if session.exchange is None:
        return [torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")]
    granted = {name: ids for name, (ids, _) in _core.context()["devices"].items() if name in _families.TORCH and ids}
    if not granted:
        return [torch.device("cpu")]
    if len(granted) > 1:
        raise RuntimeError(
            f"this worker was granted devices of several kinds, {', '.join(sorted(granted))}, and torch.get_device() cannot "
            "choose: give a worker one kind in ScalingConfig(resources_per_worker)"
        )
    (name, ids), = granted.items()
    indices = session.device_indices if session.device_indices is not None else list(range(len(ids)))
    return [torch.device(f"{_families.TORCH[name]}:{index}") for index in indices]
