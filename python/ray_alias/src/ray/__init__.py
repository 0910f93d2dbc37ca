"""Oxiray under Ray's name: `ray.x` is `oxiray.x`, for every x that Oxiray has."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from oxiray_ray_alias import RAY_COMMIT, RAY_VERSION, guard

guard.refuse_beside_ray(os.path.dirname(os.path.abspath(__file__)))

import oxiray  # noqa: E402
from oxiray import _missing  # noqa: E402
from oxiray_ray_alias import finder  # noqa: E402

finder.install()

__version__ = RAY_VERSION
__commit__ = RAY_COMMIT
__all__ = [name for name in getattr(oxiray, "__all__", dir(oxiray)) if not name.startswith("__")]


def __getattr__(name: str) -> Any:
    if not name.startswith("__"):
        if hasattr(oxiray, name):
            return getattr(oxiray, name)
        if finder.target_of(name) is not None:
            return importlib.import_module(f"ray.{name}")
    raise _missing.missing_attribute("ray", name, sys._getframe(1))


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(oxiray)})
