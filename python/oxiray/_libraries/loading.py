"""How the files of Ray's libraries are loaded, where the distribution `ray` that Oxiray makes has brought them.

They lie under `oxiray_libraries/ray`, so that a real Ray that is installed over them mixes with nothing. A library's module
has the name that it has in Ray (`ray.data.dataset`), in pickles too.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Any

from oxiray import _missing
from oxiray._libraries import contents

#: The package that the files lie in.
PACKAGE = "oxiray_libraries"


@functools.cache
def folder() -> str | None:
    """The folder that stands for `ray/`; None where no library is installed."""
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    return os.path.join(os.path.dirname(spec.origin), "ray")


def installed() -> tuple[str, ...]:
    """The libraries that are installed, those that they need too."""
    return () if folder() is None else tuple(importlib.import_module(PACKAGE).LIBRARIES)


def serves(name: str) -> bool:
    """Whether `ray.<name>` is a module of the libraries'."""
    return name not in contents.COMPLETED and _file_of(name) is not None


def preloaded(made_of: Any) -> list[str]:
    """The modules that a template imports for what is made of this function or class: a library's own, or one that stems from it."""
    for one in getattr(made_of, "__mro__", (made_of,)):
        module = getattr(one, "__module__", None) or ""
        library = module.split(".")[1] if module.startswith("ray.") else ""
        if library in contents.PRELOADED and serves(library):
            return list(contents.PRELOADED[library])
    return []


def spec_of(name: str) -> ModuleSpec | None:
    """The spec of `ray.<name>`, where that is a module of the libraries'."""
    file = _file_of(name) if name not in contents.COMPLETED else None
    if file is None:
        return None
    if not file.endswith(".py"):
        spec = ModuleSpec(f"ray.{name}", None, is_package=True)
        spec.submodule_search_locations = [file]
        return spec
    paths = [os.path.dirname(file)] if os.path.basename(file) == "__init__.py" else None
    loader = _Loader(f"ray.{name}", file)
    return importlib.util.spec_from_file_location(f"ray.{name}", file, loader=loader, submodule_search_locations=paths)


def lent(module: str, name: str) -> Any:
    """What Oxiray's `module` lacks and the libraries have: a module below it, or a name of theirs of the same module; else None."""
    if folder() is None:
        return None
    inside = module.partition(".")[2]
    below = f"{inside}.{name}".removeprefix(".")
    if serves(below):
        return importlib.import_module(f"ray.{below}")
    if inside in contents.COMPLETED and _file_of(inside) is not None:
        return getattr(importlib.import_module(f"{PACKAGE}.ray.{inside}"), name, None)
    return None


def _file_of(name: str) -> str | None:
    """The file of a module, or the folder of a package that has none."""
    base = folder()
    if base is None or not name:
        return None
    path = os.path.join(base, *name.split("."))
    if os.path.isdir(path):
        file = os.path.join(path, "__init__.py")
        if os.path.isfile(file):
            return file
        # Folders above the files of modules that Oxiray has itself are there too.
        return None if contents.is_own(name) else path
    return f"{path}.py" if os.path.isfile(f"{path}.py") else None


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        if hasattr(module, "__path__"):
            vars(module).setdefault("__getattr__", _submodules(module.__name__))


def _submodules(package: str) -> Any:
    """A `__getattr__` that imports a package's modules: in Ray, `import ray` has imported many of them."""

    def find(name: str) -> Any:
        if not name.startswith("__") and serves(f"{package}.{name}".removeprefix("ray.")):
            return importlib.import_module(f"{package}.{name}")
        raise _missing.missing_attribute(package, name, sys._getframe(1))

    return find
