"""Groups of actors that send each other the tensors of device objects (`tensor_transport="gloo"` and "nccl").

Whoever makes a group has all of its actors join a group of `ray.util.collective`.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from oxiray import _api, _device_objects, _missing, exceptions
from oxiray.actor import ActorHandle
from oxiray.util import collective
from oxiray.util.collective.types import Backend


class CommunicatorHandle:
    """A group that was made here."""

    def __init__(self, actors: list[ActorHandle], name: str, backend: str) -> None:
        self._actors = list(actors)
        self._name = name
        self._backend = Backend(backend)

    def get_rank(self, actor: ActorHandle) -> int:
        """The rank of a member; -1 for an actor that is none."""
        return self._actors.index(actor) if actor in self._actors else -1

    @property
    def actors(self) -> list[ActorHandle]:
        """Its members, by rank."""
        return list(self._actors)

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def backend(self) -> Any:
        """The backend of its members' group."""
        return self._backend


#: The groups that were made here, by name.
_made: dict[str, CommunicatorHandle] = {}


def _join(_: Any, name: str, backend: str, rank: int, members: Sequence[Any]) -> None:
    collective.init_collective_group(len(members), rank, backend, name)
    _device_objects.groups[name] = _device_objects.Group(name, str(Backend(backend)).upper(), tuple(members))


def _leave(_: Any, name: str) -> None:
    if _device_objects.groups.pop(name, None) is not None:
        collective.destroy_collective_group(name)


def create_collective_group(actors: list[ActorHandle], backend: str, name: str | None = None) -> CommunicatorHandle:
    """Has these actors join a group, with their places in the list as ranks. Returns when all of them have.

    Raises `ValueError` for a backend that is none and for an actor that is named twice, `RuntimeError` where one is in a group of this
    backend that was made here, and what joining raises.
    """
    chosen = Backend(backend)
    for actor in actors:
        if get_collective_groups([actor], backend):
            raise RuntimeError(
                f"Actor {actor} already in group for backend {chosen}. Actors can currently only participate in at most one group per "
                "backend: destroy_collective_group() ends it"
            )
    if len(set(actors)) != len(actors):
        raise ValueError(f"All actors must be unique, got: {actors}")
    name = uuid.uuid4().hex if name is None else name
    members = [actor._actor_id for actor in actors]
    _api.get([actor.__ray_call__.remote(_join, name, backend, rank, members) for rank, actor in enumerate(actors)])
    _made[name] = CommunicatorHandle(actors, name, backend)
    return _made[name]


def get_collective_groups(actors: list[ActorHandle], backend: str | None = None) -> list[CommunicatorHandle]:
    """The groups that were made here of which all these actors are members, of one backend where it is named."""
    wanted = None if backend is None else Backend(backend)
    return [
        group for group in _made.values() if set(actors) <= set(group.actors) and wanted in (None, group.backend)
    ]


def destroy_collective_group(group_or_name: CommunicatorHandle | str) -> None:
    """Has the members of a group leave it. Raises `ValueError` where none of this name was made here."""
    if not isinstance(group_or_name, (CommunicatorHandle, str)):
        raise ValueError("Expected CommunicatorHandle or str (group name).")
    name = group_or_name if isinstance(group_or_name, str) else group_or_name.name
    group = _made.pop(name, None)
    if group is None:
        raise ValueError(f"No group with name {name} found. There are {', '.join(_made) or 'none'} that were made here")
    for left in [actor.__ray_call__.remote(_leave, name) for actor in group.actors]:
        try:
            _api.get(left)
        except exceptions.ActorDiedError:
            continue


def destroy_all_collective_groups() -> None:
    """Has the members of all groups that were made here leave them."""
    for name in list(_made):
        destroy_collective_group(name)


__all__ = [
    "create_collective_group",
    "destroy_all_collective_groups",
    "destroy_collective_group",
    "get_collective_groups",
]

__getattr__ = _missing.attributes(__name__)
