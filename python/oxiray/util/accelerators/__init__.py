"""Names of device types: `@remote(num_gpus=1, accelerator_type=NVIDIA_H100)`.

Purpose: every name Ray defines, including those its own package forgets to export.
"""

from __future__ import annotations

import warnings

from oxiray.util.accelerators import accelerators
from oxiray.util.accelerators.accelerators import *  # noqa: F403
from oxiray.util.annotations import RayDeprecationWarning

#: Old name -> the name to use instead.
_RENAMED = {"NVIDIA_TESLA_A100": "NVIDIA_A100"}


def __getattr__(name: str) -> str:
    current = _RENAMED.get(name)
    if current is None:
        raise AttributeError(f"module 'ray.util.accelerators' has no attribute '{name}'")
    warnings.warn(
        f"the constant `{name}` is deprecated: use `{current}` instead", RayDeprecationWarning, stacklevel=2
    )
    return str(getattr(accelerators, current))


__all__ = [*accelerators.__all__, *_RENAMED]  # noqa: PLE0604
