"""Every public name of Ray Train is there, or raises an error that names the way out."""

from __future__ import annotations

import importlib

import pytest
from oxiray import _missing

NAMES = {module: names for module, names in _missing.names_of_ray().items() if f"{module}.".startswith("ray.train.")}
#: What programs are told to import from: everything is there.
WHOLE = (
    "ray.train", "ray.train.torch", "ray.train.collective", "ray.train.v2.jax", "ray.train.data_parallel_trainer",
    *(module for module in NAMES if module.startswith("ray.train.v2.api.") and not module.endswith((".callback", ".context"))),
)  # fmt: skip


@pytest.mark.parametrize("module", WHOLE)
def test_public_modules_are_whole(module: str) -> None:
    loaded = importlib.import_module(module)
    assert [name for name in NAMES[module] if not hasattr(loaded, name)] == []


def test_what_is_not_there_says_what_to_do() -> None:
    is_there = 0
    for module, names in NAMES.items():
        for name in names:
            try:
                exec(f"from {module} import {name}", {})
                is_there += 1
            except ImportError as error:
                is_told = "`ray.train" in str(error) and "check the spelling" not in str(error)
                assert is_told or "is not a package" in str(error), f"{module}.{name}: {error}"
    assert is_there > 80
