"""What the package `ray` consists of, kept here so that it has no names of its own."""

from __future__ import annotations

import importlib
import os
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from oxiray_ray_alias import guard


def install(file: str) -> None:
    """Has `import ray` and everything below it mean Oxiray; `file` is that of the package `ray`."""
    guard.refuse_beside_ray(os.path.dirname(os.path.abspath(file)))
    from oxiray_ray_alias import finder

    finder.install()
    # Libraries look it up among the modules that are loaded.
    importlib.import_module("ray._raylet")


def names() -> list[str]:
    """The public names."""
    import oxiray

    return [name for name in oxiray.__all__ if not name.startswith("__")]


def find(name: str) -> Any:
    """What `ray` has by this name. Raises as a module does for a name that it has not, with what to do instead.

    Functions and classes become attributes of `ray` when they are first looked up: a lookup through this function takes
    longer than a call of `ray.get`.
    """
    import oxiray
    from oxiray import _missing
    from oxiray._libraries import loading
    from oxiray_ray_alias import finder

    if not name.startswith("_") and loading.serves(name):
        return importlib.import_module(f"ray.{name}")
    if not name.startswith("__"):
        found = getattr(oxiray, name, None)
        is_submodule = isinstance(found, ModuleType) and found.__name__ == f"oxiray.{name}"
        if is_submodule or (found is None and finder.target_of(name) is not None):
            return importlib.import_module(f"ray.{name}")
        if isinstance(found, (FunctionType, BuiltinFunctionType, type)):
            vars(sys.modules["ray"])[name] = found
        if found is not None:
            return found
    raise _missing.missing_attribute("ray", name, sys._getframe(1))


def listed() -> list[str]:
    """What `dir(ray)` lists."""
    import oxiray

    return sorted({*vars(sys.modules["ray"]), *dir(oxiray)})
