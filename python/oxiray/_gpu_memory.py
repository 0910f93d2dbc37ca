"""`gpu_memory`: bytes of the memory of one GPU, asked for in place of a number of GPUs or a share of one.

A program's own custom resource may be called `gpu_memory` as well, so the resource has another name inside.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any


#: What tasks, actors, bundles and machines call it.
OPTION = "gpu_memory"
#: What the scheduler calls it (`ResourceName::GPU_MEMORY`).
RESOURCE = "GPU:memory"
#: How many bytes the GPU of a worker may be used for, as its node says.
_BYTES = "OXIRAY_GPU_MEMORY"
#: What keeps the worker to that.
_TIER = "OXIRAY_GPU_MEMORY_TIER"
#: The tiers under which a framework is refused memory that the GPU has.
_REFUSING = ("framework", "interposer", "mps", "dmem", "mig")
#: The share of the GPU's memory that its framework may take.
_FRACTION = "OXIRAY_GPU_MEMORY_FRACTION"
#: What PyTorch reads when it starts: the name of 2.9 and later first.
_TORCH_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_TORCH_KEY = "per_process_memory_fraction"
#: Since when PyTorch knows that key, and does not refuse it.
_TORCH_SINCE = (2, 10)

_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<prefix>[kmgt]?)(?P<unit>ib|b|)", re.IGNORECASE)


def size(name: str, value: Any) -> int:
    """A size in bytes: of a number, or of a text such as "8GiB", "8 GB" or "8g" (of 1,024).

    Raises:
        TypeError: it is neither.
        ValueError: it is not above zero, or no such text.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError(f'{name} must be a number of bytes or a text such as "8GiB", not {value!r}')
    if isinstance(value, str):
        found = _SIZE.fullmatch(value.strip())
        if found is None:
            raise ValueError(f'{name} is {value!r}, which is no size: give bytes, or a text such as "8GiB", "8GB" or "8g"')
        prefix, unit = found["prefix"].lower(), found["unit"].lower()
        base = 1000 if prefix and unit == "b" else 1024
        value = float(found["number"]) * base ** " kmgt".index(prefix or " ")
    # NaN too.
    if not 1 <= value < 1e14:
        raise ValueError(f"{name} must be at least one byte and less than 1e14, not {value}")
    return int(value)


def check(name: str, value: Any) -> None:
    """Refuses what is no size; None stands for none, and so does zero."""
    if value is not None and value != 0:
        size(name, value)


def asked(given: Mapping[str, Any]) -> int:
    """How much the options of a task or an actor ask for; 0 for none.

    Raises:
        ValueError: GPUs are asked for besides.
    """
    if not given.get(OPTION):
        return 0
    if given.get("num_gpus"):
        raise ValueError(
            f"num_gpus={given['num_gpus']!r} and gpu_memory={given[OPTION]!r} were given together: ask for a number of GPUs "
            "or a share of one, or for memory of one. Where the decorator says one and .options() the other, give None for "
            "the first"
        )
    return size(OPTION, given[OPTION])


def in_bytes(bundle: Mapping[str, Any]) -> dict[str, float]:
    """The resources of a bundle as numbers, with memory of a GPU in bytes."""
    return {name: float(size(name, amount) if name == OPTION and amount else amount) for name, amount in bundle.items()}


def inward(resources: Mapping[str, float]) -> dict[str, float]:
    """The same, as the scheduler calls them."""
    return {RESOURCE if name == OPTION else name: amount for name, amount in resources.items()}


def outward(resources: Mapping[str, float]) -> dict[str, float]:
    """What the scheduler calls them, as requests do."""
    return {OPTION if name == RESOURCE else name: amount for name, amount in resources.items()}


def cap() -> None:
    """Has frameworks of this worker take no more than its part of a GPU's memory, where it has such a part."""
    fraction = os.environ.get(_FRACTION)
    if fraction is None or _BYTES not in os.environ:
        return
    if _torch_version() >= _TORCH_SINCE:
        _set_in_environment(fraction)
    sys.meta_path.insert(0, _TorchImport(float(fraction)))


def _torch_version() -> tuple[int, ...]:
    """The version of PyTorch that is installed; empty where there is none."""
    from importlib import metadata

    try:
        parts = metadata.version("torch").split(".")[:2]
        return tuple(int(part) for part in parts)
    except (metadata.PackageNotFoundError, ValueError):
        return ()


def _set_in_environment(fraction: str) -> None:
    """For this process and those that it starts; what the user has said stands."""
    name = next((name for name in _TORCH_SETTINGS if os.environ.get(name)), _TORCH_SETTINGS[1])
    said = os.environ.get(name, "")
    if _TORCH_KEY not in said:
        os.environ[name] = f"{said},{_TORCH_KEY}:{fraction}" if said else f"{_TORCH_KEY}:{fraction}"


class _TorchImport:
    """Waits for the program to import `torch.cuda`, and tells it its fraction: any version knows the call."""

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The module as others find it, which is told its fraction once it is loaded."""
        if name != "torch.cuda":
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            load, fraction = spec.loader.exec_module, self._fraction

            def exec_module(module: Any) -> None:
                load(module)
                # Done when the program first uses a GPU, and not before.
                module._lazy_call(lambda: module.set_per_process_memory_fraction(fraction))

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def explain(error: BaseException) -> None:
    """Adds a line to a framework's error for want of a GPU's memory: how much this process was capped at, and by what."""
    limit, tier = os.environ.get(_BYTES), os.environ.get(_TIER)
    if limit is None or tier not in _REFUSING or type(error).__name__ not in ("OutOfMemoryError", "XlaRuntimeError"):
        return
    if not error.args or not isinstance(error.args[0], str) or "memory" not in error.args[0].lower():
        return
    from oxiray import _core

    asked = f"gpu_memory={limit}" if OPTION in _core.context()["resources"] else "a share that is a limit on memory"
    line = f"Oxiray: this process was capped at {_in_gib(int(limit))} ({asked}, tier {tier})"
    error.args = (f"{error.args[0]}\n{line}", *error.args[1:])


def _in_gib(count: int) -> str:
    return f"{count / 2**30:.2f}".rstrip("0").rstrip(".") + " GiB"
