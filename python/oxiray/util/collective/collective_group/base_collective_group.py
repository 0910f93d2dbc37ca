"""What a backend of collectives is."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from typing import Any

from oxiray.util.collective.types import (
    AllGatherOptions,
    AllReduceOptions,
    BarrierOptions,
    BroadcastOptions,
    RecvOptions,
    ReduceOptions,
    ReduceScatterOptions,
    SendOptions,
)


class BaseGroup(metaclass=ABCMeta):
    """This process's part in a group. A backend is a subclass of it (`register_collective_backend`).

    Every operation works on the tensors in place and returns when this process's part is done. Tensors come as a list with
    one tensor, since backends of Ray are called so.
    """

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        self._world_size = world_size
        self._rank = rank
        self._group_name = group_name

    @property
    def rank(self) -> int:
        """The number of this process in the group, from 0."""
        return self._rank

    @property
    def world_size(self) -> int:
        """How many processes the group has."""
        return self._world_size

    @property
    def group_name(self) -> str:
        """The name of the group."""
        return self._group_name

    def destroy_group(self) -> None:
        """Gives back what the group holds in this process."""

    @classmethod
    def backend(cls) -> str:
        """The name of the backend."""
        raise NotImplementedError

    @classmethod
    @abstractmethod
    def check_backend_availability(cls) -> bool:
        """Whether it can be used in this process."""

    @abstractmethod
    def allreduce(self, tensor: Any, allreduce_options: AllReduceOptions = AllReduceOptions()) -> None:
        """Every member's tensor becomes the reduction of all."""

    @abstractmethod
    def barrier(self, barrier_options: BarrierOptions = BarrierOptions()) -> None:
        """Returns when every member has called it."""

    @abstractmethod
    def reduce(self, tensor: Any, reduce_options: ReduceOptions = ReduceOptions()) -> None:
        """The root's tensor becomes the reduction of all."""

    @abstractmethod
    def allgather(
        self, tensor_list: Any, tensor: Any, allgather_options: AllGatherOptions = AllGatherOptions()
    ) -> None:
        """Every member's list becomes the tensors of all, in the order of their ranks."""

    @abstractmethod
    def broadcast(self, tensor: Any, broadcast_options: BroadcastOptions = BroadcastOptions()) -> None:
        """Every member's tensor becomes the root's."""

    @abstractmethod
    def reducescatter(
        self, tensor: Any, tensor_list: Any, reducescatter_options: ReduceScatterOptions = ReduceScatterOptions()
    ) -> None:
        """A member's tensor becomes the reduction of what all have in their lists at its rank."""

    @abstractmethod
    def send(self, tensor: Any, send_options: SendOptions) -> None:
        """Sends a tensor to a member that receives it."""

    @abstractmethod
    def recv(self, tensor: Any, recv_options: RecvOptions) -> None:
        """The tensor becomes what a member sends."""
