"""The backends that this process knows."""

from __future__ import annotations

import importlib

from oxiray.util.annotations import PublicAPI
from oxiray.util.collective import types
from oxiray.util.collective.collective_group.base_collective_group import BaseGroup

#: Those that come along. Their modules import PyTorch, which takes long, only where a group of theirs is made.
_OWN = {
    "GLOO": ("oxiray.util.collective.collective_group.torch_gloo_collective_group", "TorchGLOOGroup"),
    "NCCL": ("oxiray.util.collective.collective_group.nccl_collective_group", "NCCLGroup"),
}


class BackendRegistry:
    """The classes of groups, by the name of their backend in capitals. There is one in a process."""

    _instance: BackendRegistry | None = None
    _map: dict[str, type[BaseGroup]]

    def __new__(cls) -> BackendRegistry:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance._map = {}
        return cls._instance

    def put(self, name: str, group_cls: type[BaseGroup]) -> None:
        """Adds a backend. Raises `TypeError` where it is no subclass of `BaseGroup`, and `ValueError` for a name that is taken."""
        if not (isinstance(group_cls, type) and issubclass(group_cls, BaseGroup)):
            raise TypeError(f"{group_cls} is not a subclass of BaseGroup")
        if self.is_registered(name):
            raise ValueError(f"Backend {name.upper()} already registered")
        self._map[name.upper()] = group_cls

    def get(self, name: str) -> type[BaseGroup]:
        """The class of a backend. Raises `ValueError` where there is none of that name."""
        upper = types.in_capitals(name)
        if upper not in self._map and upper in _OWN and types.torch_available():
            module, found = _OWN[upper]
            self._map[upper] = getattr(importlib.import_module(module), found)
        if upper not in self._map:
            known = ", ".join(sorted({*self._map, *_OWN}))
            why = "it needs PyTorch, which is not installed here" if upper in _OWN else f"there are {known}"
            raise ValueError(f"Backend {upper} not registered: {why}")
        return self._map[upper]

    def is_registered(self, name: str) -> bool:
        """Whether there is one of that name, available or not."""
        upper = types.in_capitals(name)
        return upper in self._map or upper in _OWN

    def check(self, name: str) -> bool:
        """Whether there is one of that name that can be used in this process."""
        try:
            return self.get(name).check_backend_availability()
        except (ValueError, AttributeError):
            return False


_global_registry = BackendRegistry()


@PublicAPI(stability="alpha")
def register_collective_backend(name: str, group_cls: type[BaseGroup]) -> None:
    """Makes a backend known in this process: to be called in the driver and in every member, before they make a group.

    `group_cls` is a subclass of `BaseGroup`, made with `(world_size, rank, group_name)`. Its name becomes an attribute of
    `Backend`. Raises `TypeError` for another class, and `ValueError` for a name that is taken.
    """
    _global_registry.put(name, group_cls)
    if not hasattr(types.Backend, name.upper()):
        setattr(types.Backend, name.upper(), name.upper())
