"""Collective calls between actors or tasks: the public functions, over the groups that this process is in.

Invariants:
1. A process has one part in a group of a name. It is made by `init_collective_group`, or with the first call where the
   driver has declared the group (`create_collective_group`).
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Sequence
from typing import Any, TypeVar

import oxiray
from oxiray import _core
from oxiray._common.network_utils import find_free_port
from oxiray.util.collective import _meeting, types
from oxiray.util.collective.backend_registry import _global_registry
from oxiray.util.collective.collective_group.base_collective_group import BaseGroup

_Options = TypeVar("_Options")

#: For how long members wait for each other by default, in milliseconds.
_TIMEOUT_MS = 30_000


def is_backend_available(backend: str) -> bool:
    """Whether groups of that backend ("NCCL", "GLOO", or one of others) can be made in this process."""
    return _global_registry.check(backend)


def nccl_available() -> bool:
    """Whether PyTorch with NCCL and a GPU are there."""
    return is_backend_available("NCCL")


def gloo_available() -> bool:
    """Whether PyTorch with Gloo is there."""
    return is_backend_available("GLOO")


def get_address_and_port() -> tuple[str, int]:
    """This node's address, and a port there that nobody listened at a moment ago."""
    address = oxiray.util.get_node_ip_address()
    return address, find_free_port(socket.AF_INET6 if ":" in address else socket.AF_INET)


class GroupManager:
    """The groups that this process is in, by name."""

    def __init__(self) -> None:
        self._groups: dict[str, BaseGroup] = {}
        self._lock = threading.Lock()

    def create_collective_group(
        self, backend: str, world_size: int, rank: int, group_name: str, gloo_timeout: int | None = None
    ) -> BaseGroup:
        """Makes this process's part, which waits for the other members. Raises `RuntimeError` for a backend that cannot be used
        here, and `ValueError` for one that is not known."""
        upper = types.in_capitals(backend)
        of_backend = _global_registry.get(upper)
        if not of_backend.check_backend_availability():
            raise RuntimeError(
                f"Backend {upper} is not available. Please check the installation: NCCL needs a GPU that this process was "
                'granted (num_gpus=1) and PyTorch with CUDA; backend="GLOO" works on any machine'
            )
        arguments: tuple[Any, ...] = (world_size, rank, group_name)
        made = of_backend(*arguments, gloo_timeout) if upper in ("GLOO", "NCCL") else of_backend(*arguments)  # type: ignore[call-arg]
        self._groups[group_name] = made
        return made

    def is_group_exist(self, group_name: str) -> bool:
        """Whether this process has a part in a group of that name."""
        return group_name in self._groups

    def get_group_by_name(self, group_name: str) -> BaseGroup | None:
        """This process's part in a group; None where it has none."""
        return self._groups.get(group_name)

    def destroy_collective_group(self, group_name: str) -> None:
        """Ends this process's part, where it has one, and the group's declaration."""
        found = self._groups.pop(group_name, None)
        if found is not None:
            found.destroy_group()
            _meeting.end(group_name)


_group_mgr = GroupManager()
#: Where the members of groups meet that this process has declared: they are there as long as this process.
_declared_here: dict[str, Any] = {}


def is_group_initialized(group_name: str) -> bool:
    """Whether this process has a part in a group of that name."""
    with _group_mgr._lock:
        return _group_mgr.is_group_exist(group_name)


def init_collective_group(
    world_size: int,
    rank: int,
    backend: str = types.Backend.NCCL,
    group_name: str = "default",
    gloo_timeout: int = _TIMEOUT_MS,
) -> None:
    """Makes this actor or task a member of a group, and waits until all `world_size` members are there.

    Every member calls it, with ranks from 0 to `world_size - 1` and the same name. `backend` is "NCCL" for tensors on GPUs,
    "GLOO" for arrays and tensors in main memory, or one that `register_collective_backend` made known. `gloo_timeout` is for
    how long a call waits for the other members, in milliseconds.

    Raises `RuntimeError` outside of an actor or task, for a group that this process is in already, where the backend cannot
    be used, and where not all members come in time; `ValueError` for a rank, a number or a name that cannot be.
    """
    _check_inside_actor()
    if not group_name or not isinstance(group_name, str):
        raise ValueError(f"group_name '{group_name}' needs to be a string.")
    _check_sizes(world_size, [rank])
    with _group_mgr._lock:
        if _group_mgr.is_group_exist(group_name):
            raise RuntimeError(
                f"Trying to initialize a group a second time: this process is rank "
                f"{_group_mgr._groups[group_name].rank} of `{group_name}`; destroy_collective_group() ends that"
            )
        _group_mgr.create_collective_group(backend, world_size, rank, group_name, gloo_timeout)


def create_collective_group(
    actors: Sequence[Any],
    world_size: int,
    ranks: Sequence[int],
    backend: str = types.Backend.NCCL,
    group_name: str = "default",
    gloo_timeout: int = _TIMEOUT_MS,
) -> None:
    """Declares a group of actors from outside: each becomes a member with its first collective call.

    `ranks` are those of `actors`, in the same order: the numbers from 0 to `world_size - 1`, each once. The other arguments are
    those of `init_collective_group`. Raises `RuntimeError` where the numbers do not fit, the backend cannot be used, or
    there is a group of that name.
    """
    if len(ranks) != len(actors):
        raise RuntimeError(
            f"Each actor should correspond to one rank. Got '{len(ranks)}' ranks but '{len(actors)}' actors"
        )
    if sorted(ranks) != list(range(len(ranks))):
        raise RuntimeError(f"Ranks must be a permutation from 0 to '{len(ranks)}'. Got '{list(ranks)}'.")
    if world_size <= 0:
        raise RuntimeError(f"World size must be greater than zero. Got '{world_size}'.")
    if len(ranks) > world_size:
        raise RuntimeError(f"Ranks cannot be greater than world_size: got {len(ranks)} of them, and world_size={world_size}.")
    upper = types.in_capitals(backend)
    if not _global_registry.is_registered(upper):
        raise RuntimeError(
            f"Backend {upper} is not registered. Please register it using register_collective_backend('{upper}', "
            "YourBackendClass), here and in the actors."
        )
    # NCCL is used by the actors, where the GPUs are: a driver has none.
    if upper != "NCCL" and not _global_registry.check(upper):
        raise RuntimeError(
            f"Backend {upper} is registered but not available. Please check the installation requirements for this backend."
        )
    ids = [actor._actor_id for actor in actors]
    place, is_new = _meeting.ask(group_name, "set_info", ids, world_size, list(ranks), backend, gloo_timeout)
    if is_new:
        _declared_here[group_name] = place
    else:
        raise RuntimeError(
            f"Trying to initialize a group twice: `{group_name}` is declared. Another name, or "
            "destroy_collective_group() in one of its members, makes room"
        )


def destroy_collective_group(group_name: str = "default") -> None:
    """Ends this process's part in a group, and its declaration; nothing where it has none. Raises `RuntimeError` outside of an
    actor or task."""
    _check_inside_actor()
    with _group_mgr._lock:
        _group_mgr.destroy_collective_group(group_name)


def get_rank(group_name: str = "default") -> int:
    """The rank of this process in a group, and -1 where it has no part in it."""
    found = _own_part(group_name)
    return -1 if found is None else found.rank


def get_collective_group_size(group_name: str = "default") -> int:
    """How many members a group has, and -1 where this process has no part in it."""
    found = _own_part(group_name)
    return -1 if found is None else found.world_size


def _own_part(group_name: str) -> BaseGroup | None:
    _check_inside_actor()
    with _group_mgr._lock:
        return _group_mgr.get_group_by_name(group_name)


def get_group_handle(group_name: str = "default") -> BaseGroup:
    """This process's part in a group, which is made now where the group was declared for this actor.

    Raises `RuntimeError` outside of an actor or task, and where this process is to have no part in a group of that name.
    """
    _check_inside_actor()
    with _group_mgr._lock:
        found = _group_mgr.get_group_by_name(group_name)
        if found is not None:
            return found
        declared = _declared(group_name)
        if declared is None:
            raise RuntimeError(
                f"The collective group '{group_name}' is not initialized in the process: call init_collective_group() in "
                "every member, or create_collective_group() with the actors in the driver"
            )
        world_size, rank, backend, timeout_ms = declared
        return _group_mgr.create_collective_group(backend, world_size, rank, group_name, timeout_ms)


def _declared(group_name: str) -> tuple[int, int, str, int] | None:
    """What was declared of a group for this actor: how many members there are, its rank, the backend, the limit."""
    found = _meeting.existing(group_name)
    own = oxiray.get_runtime_context().get_actor_id()
    told = None if found is None or own is None else oxiray.get(found.get_info.remote())
    if told is None:
        return None
    ids, world_size, ranks, backend, timeout_ms = told
    by_actor = {identifier.hex(): rank for identifier, rank in zip(ids, ranks, strict=True)}
    return None if own not in by_actor else (world_size, by_actor[own], backend, timeout_ms)


def allreduce(tensor: Any, group_name: str = "default", op: types.ReduceOp = types.ReduceOp.SUM) -> None:
    """Every member's tensor becomes the reduction of all, in place.

    Tensors are NumPy arrays or PyTorch's, of the same shape and type in all members; with NCCL, PyTorch's on a GPU, or CuPy's.
    Like all calls here it returns when this process's part is done, and raises `RuntimeError` where a member has ended or
    does not come in time: the group is over then.
    """
    _check_tensor(tensor)
    get_group_handle(group_name).allreduce([tensor], _with(types.AllReduceOptions(), reduceOp=op))


def barrier(group_name: str = "default") -> None:
    """Returns when every member has called it."""
    get_group_handle(group_name).barrier(types.BarrierOptions())


def reduce(
    tensor: Any, dst_rank: int = 0, group_name: str = "default", op: types.ReduceOp = types.ReduceOp.SUM
) -> None:
    """The tensor of rank `dst_rank` becomes the reduction of all, in place; those of the others are undefined after it."""
    _check_tensor(tensor)
    group = get_group_handle(group_name)
    _check_rank(group, dst_rank)
    group.reduce([tensor], _with(types.ReduceOptions(), reduceOp=op, root_rank=dst_rank))


def broadcast(tensor: Any, src_rank: int = 0, group_name: str = "default") -> None:
    """Every member's tensor becomes that of rank `src_rank`, in place."""
    _check_tensor(tensor)
    group = get_group_handle(group_name)
    _check_rank(group, src_rank)
    group.broadcast([tensor], _with(types.BroadcastOptions(), root_rank=src_rank))


def allgather(tensor_list: list[Any], tensor: Any, group_name: str = "default") -> None:
    """The entries of `tensor_list`, one of each member, become the members' tensors, in the order of their ranks."""
    _check_tensor(tensor)
    _check_tensors(tensor_list)
    get_group_handle(group_name).allgather([tensor_list], [tensor], types.AllGatherOptions())


def reducescatter(
    tensor: Any, tensor_list: list[Any], group_name: str = "default", op: types.ReduceOp = types.ReduceOp.SUM
) -> None:
    """The tensor of each member becomes the reduction of what all members have in their lists at its rank."""
    _check_tensor(tensor)
    _check_tensors(tensor_list)
    get_group_handle(group_name).reducescatter([tensor], [tensor_list], _with(types.ReduceScatterOptions(), reduceOp=op))


def send(tensor: Any, dst_rank: int, group_name: str = "default") -> None:
    """Sends a tensor to another member, which calls `recv`. Raises `RuntimeError` for this process's own rank."""
    _check_tensor(tensor)
    group = get_group_handle(group_name)
    _check_rank(group, dst_rank)
    if dst_rank == group.rank:
        raise RuntimeError(f"The destination rank '{dst_rank}' is self.")
    group.send([tensor], _with(types.SendOptions(), dst_rank=dst_rank))


def recv(tensor: Any, src_rank: int, group_name: str = "default") -> None:
    """The tensor becomes what another member sends, of the same shape and type. Raises `RuntimeError` for this process's own
    rank."""
    _check_tensor(tensor)
    group = get_group_handle(group_name)
    _check_rank(group, src_rank)
    if src_rank == group.rank:
        raise RuntimeError(f"The destination rank '{src_rank}' is self.")
    group.recv([tensor], _with(types.RecvOptions(), src_rank=src_rank))


def synchronize(gpu_id: int) -> None:
    """Waits until everything is done that was begun on a GPU of this process, by its number in this process."""
    import torch

    torch.cuda.synchronize(gpu_id)


def _refuse_multigpu(name: str) -> None:
    raise RuntimeError(
        f"Multigpu calls requires NCCL and Cupy. {name}() of several GPUs in one process is not there, nor has PyTorch it any "
        f"more: have one actor for each GPU (num_gpus=1), and call {name.removesuffix('_multigpu')}()"
    )


def allreduce_multigpu(tensor_list: Any, group_name: str = "default", op: types.ReduceOp = types.ReduceOp.SUM) -> None:
    """Not there: raises `RuntimeError`, which says what to do instead."""
    _refuse_multigpu("allreduce_multigpu")


def reduce_multigpu(tensor_list: Any, dst_rank: int = 0, dst_tensor: int = 0, group_name: str = "default", op: types.ReduceOp = types.ReduceOp.SUM) -> None:
    """Not there: raises `RuntimeError`, which says what to do instead."""
    _refuse_multigpu("reduce_multigpu")


def broadcast_multigpu(tensor_list: Any, src_rank: int = 0, src_tensor: int = 0, group_name: str = "default") -> None:
    """Not there: raises `RuntimeError`, which says what to do instead."""
    _refuse_multigpu("broadcast_multigpu")


def allgather_multigpu(output_tensor_lists: Any, input_tensor_list: Any, group_name: str = "default") -> None:
    """Not there: raises `RuntimeError`, which says what to do instead."""
    _refuse_multigpu("allgather_multigpu")


def reducescatter_multigpu(output_tensor_list: Any, input_tensor_lists: Any, group_name: str = "default", op: types.ReduceOp = types.ReduceOp.SUM) -> None:
    """Not there: raises `RuntimeError`, which says what to do instead."""
    _refuse_multigpu("reducescatter_multigpu")


def send_multigpu(tensor: Any, dst_rank: int, dst_gpu_index: int, group_name: str = "default", n_elements: int = 0) -> None:
    """Not there: raises `RuntimeError`, which says what to do instead."""
    _refuse_multigpu("send_multigpu")


def recv_multigpu(tensor: Any, src_rank: int, src_gpu_index: int, group_name: str = "default", n_elements: int = 0) -> None:
    """Not there: raises `RuntimeError`, which says what to do instead."""
    _refuse_multigpu("recv_multigpu")


def _with(options: _Options, **named: Any) -> _Options:
    for name, value in named.items():
        setattr(options, name, value)
    return options


def _check_inside_actor() -> None:
    if not _core.is_connected() or not _core.context()["is_worker"]:
        raise RuntimeError("The collective APIs shall be only used inside a Ray actor or task.")


def _check_sizes(world_size: int, ranks: Sequence[int]) -> None:
    if world_size <= 0:
        raise ValueError(f"world_size={world_size}: a group has at least one member")
    for rank in ranks:
        if not 0 <= rank < world_size:
            raise ValueError(f"rank={rank} with world_size={world_size}: ranks are from 0 to {world_size - 1}")


def _check_rank(group: BaseGroup, rank: int) -> None:
    if rank < 0:
        raise ValueError(f"rank '{rank}' is negative.")
    if rank >= group.world_size:
        raise ValueError(f"rank '{rank}' must be less than world size '{group.world_size}'")


def _check_tensor(tensor: Any) -> None:
    for module, name in (("numpy", "ndarray"), ("torch", "Tensor"), ("cupy", "ndarray")):
        # What was not imported has no tensors.
        known = sys.modules.get(module)
        if known is not None and isinstance(tensor, getattr(known, name, ())):
            return
    raise RuntimeError(
        f"Unrecognized tensor type '{type(tensor)}'. Supported types are: np.ndarray, torch.Tensor, cupy.ndarray."
    )


def _check_tensors(tensors: Any) -> None:
    if not isinstance(tensors, list):
        raise RuntimeError(f"The input must be a list of tensors. Got '{type(tensors)}'.")
    if not tensors:
        raise RuntimeError("Got an empty list of tensors.")
    for tensor in tensors:
        _check_tensor(tensor)
