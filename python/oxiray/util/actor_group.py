"""Several actors of one class that are called together, for compatibility: deprecated in Ray, which advises a list of actors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import oxiray
from oxiray import _missing


@dataclass
class ActorWrapper:
    """An actor of a group, and what its `get_actor_metadata` returned; None where its class has none."""

    actor: Any
    metadata: Any


class ActorGroupMethod:
    """A method of all actors of a group: `remote(...)` calls each."""

    def __init__(self, actor_group: ActorGroup, method_name: str) -> None:
        self._group = actor_group
        self._name = method_name

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"ActorGroup methods cannot be called directly: call .{self._name}.remote(...) instead")

    def remote(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Calls the method of every actor: the references of the results, in the order of the actors."""
        return [getattr(wrapper.actor, self._name).remote(*args, **kwargs) for wrapper in self._group.actors]


class ActorGroup:
    """`num_actors` actors of `actor_cls`, which are started at once.

    Raises `ValueError` for fewer than one actor, and for a negative quantity.
    """

    def __init__(
        self,
        actor_cls: type,
        num_actors: int = 1,
        num_cpus_per_actor: float = 1,
        num_gpus_per_actor: float = 0,
        resources_per_actor: dict[str, float] | None = None,
        init_args: tuple[Any, ...] = (),
        init_kwargs: dict[str, Any] | None = None,
    ) -> None:
        if num_actors <= 0:
            raise ValueError(f"The provided `num_actors` must be greater than 0. Received num_actors={num_actors} instead.")
        if num_cpus_per_actor < 0 or num_gpus_per_actor < 0:
            raise ValueError(
                "The number of CPUs and GPUs per actor must not be negative. Received "
                f"num_cpus_per_actor={num_cpus_per_actor} and num_gpus_per_actor={num_gpus_per_actor}."
            )
        self._class: Any = oxiray.remote(
            num_cpus=num_cpus_per_actor, num_gpus=num_gpus_per_actor, resources=resources_per_actor
        )(actor_cls)
        self._init = init_args, init_kwargs or {}
        self.num_actors = num_actors
        self.actors: list[ActorWrapper] = []
        self.start()

    def __getattr__(self, name: str) -> ActorGroupMethod:
        if name.startswith("__") or not hasattr(self.__dict__["_class"], name):
            raise AttributeError(f"ActorGroup has no attribute {name!r}, and neither has its class", name=name, obj=self)
        return ActorGroupMethod(self, name)

    def __len__(self) -> int:
        return len(self.actors)

    def __getitem__(self, item: int) -> ActorWrapper:
        return self.actors[item]

    def start(self) -> None:
        """Starts the actors. Raises `RuntimeError` where they are started already."""
        if self.actors:
            raise RuntimeError("The actors have already been started: shutdown() ends them")
        self.add_actors(self.num_actors)

    def shutdown(self, patience_s: float = 5) -> None:
        """Ends the actors, once what they were given is done or `patience_s` seconds are over."""
        ended = [wrapper.actor.__ray_terminate__.remote() for wrapper in self.actors]
        if ended and patience_s > 0:
            oxiray.wait(ended, num_returns=len(ended), timeout=patience_s)
        for wrapper in self.actors:
            oxiray.kill(wrapper.actor)
        self.actors = []

    def remove_actors(self, actor_indexes: list[int]) -> None:
        """Gives up the actors of these numbers: each ends when nobody else refers to it."""
        self.actors = [wrapper for index, wrapper in enumerate(self.actors) if index not in actor_indexes]

    def add_actors(self, num_actors: int) -> None:
        """Starts so many actors more, and waits until they are there."""
        args, kwargs = self._init
        actors = [self._class.remote(*args, **kwargs) for _ in range(num_actors)]
        tells = hasattr(self._class, "get_actor_metadata")
        oxiray.get([actor.__ray_ready__.remote() for actor in actors])
        metadata = oxiray.get([actor.get_actor_metadata.remote() for actor in actors]) if tells else [None] * num_actors
        self.actors += [ActorWrapper(actor, facts) for actor, facts in zip(actors, metadata, strict=True)]

    @property
    def actor_metadata(self) -> list[Any]:
        """What the `get_actor_metadata` of each actor returned; None for each where their class has none."""
        return [wrapper.metadata for wrapper in self.actors]


__all__ = ["ActorGroup", "ActorGroupMethod", "ActorWrapper"]

__getattr__ = _missing.attributes(__name__)
