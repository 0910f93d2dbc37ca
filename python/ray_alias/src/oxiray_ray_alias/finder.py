"""Find `ray.x.y` as `oxiray.x.y`.

Invariants:
1. A module has one object: `ray.x is oxiray.x`, so classes are the same whichever
   name they were imported by, and pickles name them by `oxiray`.
2. This finder answers for every name under `ray`; nothing else may, since the
   search paths of those modules lead into `oxiray` and would load them twice.
   Modules of Ray's libraries, where they are installed, have their names in Ray; so
   have tests (`ray.tests`, `ray.data.tests`) that somebody put beside this package.
3. Asking whether a module exists (`importlib.util.find_spec`) never raises.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from oxiray import _missing
from oxiray._libraries import loading

#: Modules under `ray` whose submodules are not under `oxiray` but have an equal elsewhere.
_ELSEWHERE = {"cloudpickle": "cloudpickle"}


def target_of(name: str) -> str | None:
    """The module that `ray.<name>` stands for; None where there is none."""
    candidates = [f"oxiray.{name}"]
    first, _, rest = name.partition(".")
    if first in _ELSEWHERE:
        candidates.append(".".join(filter(None, (_ELSEWHERE[first], rest))))
    for candidate in candidates:
        try:
            if importlib.util.find_spec(candidate) is not None:
                return candidate
        except ModuleNotFoundError:
            # A parent of the candidate is missing, or is no package.
            continue
    return None


def tests_of(fullname: str) -> ModuleSpec | None:
    """The spec of a module of tests, in a folder `tests` below one that `ray.__path__` names; None where there is none.

    Ray's tests import each other by these names. Nobody else's modules are looked for there.
    """
    *parents, _ = fullname.split(".")[1:]
    if "tests" not in fullname.split(".")[1:]:
        return None
    roots = getattr(sys.modules.get("ray"), "__path__", ())
    return PathFinder.find_spec(fullname, [os.path.join(root, *parents) for root in roots])


class AliasFinder:
    """Answers for every module under `ray`.

    It has no base class, as none is needed: importing `importlib.abc` takes longer than all else that finders import.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of the module that this name stands for."""
        root, _, name = fullname.partition(".")
        if root != "ray" or not name:
            return None
        if (library := loading.spec_of(name)) is not None:
            return library
        real = target_of(name)
        if real is not None:
            return ModuleSpec(fullname, _AliasLoader(real), origin=real)
        if (tests := tests_of(fullname)) is not None:
            return tests
        if _missing.is_only_asked(sys._getframe(1)):
            return None
        raise _missing.missing_module(name)


class _AliasLoader:
    def __init__(self, real: str) -> None:
        self._real = real
        self._own_spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._real)
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just marked the module as ours; it keeps its own name and origin.
        module.__spec__ = self._own_spec
        # Its submodules that are there already must not be imported anew under this name: that would put the submodule
        # in the place of a function of the same name, as `util.placement_group` has one.
        for name, submodule in list(sys.modules.items()):
            if name.startswith(f"{self._real}."):
                sys.modules.setdefault(f"ray{name.removeprefix('oxiray')}", submodule)
        # Some of what was loaded with it may not have been there when modules were told of missing names.
        _missing.explain()


def install() -> None:
    """Put the finder before all others, once."""
    if not any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, AliasFinder())
