"""Groups over the process groups of PyTorch, each by itself: none is torch's default group, which stays the program's.

Invariants:
1. What a call fails of ends the group in this process, and with it the connections to the others, whose calls fail at
   once of that: a member that dies is known to all within one call, and nobody waits for the limit.
2. An array is worked on where it lies. One that may not be written is refused, as what `ray.get` returns is.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import oxiray
import torch
import torch.distributed as dist
from oxiray.exceptions import GetTimeoutError
from oxiray.util.collective import _meeting, types
from oxiray.util.collective.collective_group.base_collective_group import BaseGroup

#: For how long a call waits for the others where nothing is said, in milliseconds.
TIMEOUT_MS = 30_000
_REDUCTIONS = {
    types.ReduceOp.SUM: dist.ReduceOp.SUM,
    types.ReduceOp.PRODUCT: dist.ReduceOp.PRODUCT,
    types.ReduceOp.MIN: dist.ReduceOp.MIN,
    types.ReduceOp.MAX: dist.ReduceOp.MAX,
}


class TorchGroup(BaseGroup):
    """What the backends have in common. They say how the process group is made, and where tensors have to be."""

    def __init__(self, world_size: int, rank: int, group_name: str, timeout_ms: int | None = None) -> None:
        super().__init__(world_size, rank, group_name)
        self._timeout = timedelta(milliseconds=TIMEOUT_MS if timeout_ms is None else timeout_ms)
        self._broken: BaseException | None = None
        # The actor is there as long as somebody has it: until all have found the store.
        _place, self._store = self._find_store()
        try:
            self._wait_for_all(self._store)
            self._group: Any = self._make(self._store)
        except RuntimeError as error:
            raise RuntimeError(
                f"collective group `{group_name}`: rank {rank} of {world_size} found rank 0 and did not find all others "
                f"within {self._timeout.total_seconds():g} s: {error}"
            ) from error

    @abstractmethod
    def _make(self, store: dist.Store) -> Any:
        """The process group of PyTorch, once all members have met."""

    @abstractmethod
    def _check(self, tensor: torch.Tensor) -> None:
        """Raises `ValueError` for a tensor that is where the backend cannot reach it."""

    def _find_store(self) -> tuple[Any, dist.Store]:
        """The store that rank 0 serves and the others reach, and the actor by which they find it."""
        if self.rank == 0:
            host = oxiray.util.get_node_ip_address()
            store = dist.TCPStore(host, 0, self.world_size, True, self._timeout, wait_for_workers=False)
            place, _ = _meeting.ask(self.group_name, "open", (host, store.port))
            return place, store
        until, gone = time.monotonic() + self._timeout.total_seconds(), None
        while True:
            try:
                left = max(until - time.monotonic(), 0.0)
                place, address = _meeting.ask(self.group_name, "address", gone, timeout=left)
            except GetTimeoutError as error:
                raise RuntimeError(
                    f"collective group `{self.group_name}`: rank {self.rank} of {self.world_size} has waited "
                    f"{self._timeout.total_seconds():g} s for rank 0, which has not made the group: every member is to "
                    "make it, with ranks from 0 on and the same name"
                ) from error
            try:
                return place, dist.TCPStore(*address, self.world_size, False, self._timeout, wait_for_workers=False)
            except dist.DistNetworkError:
                gone = address

    def _wait_for_all(self, store: dist.Store) -> None:
        if store.add("members", 1) == self.world_size:
            store.set("all", "")
        store.wait(["all"])

    def destroy_group(self) -> None:
        """Closes the connections to the other members."""
        group, self._group, self._store = self._group, None, None
        if group is not None and hasattr(group, "abort"):
            group.abort()

    def _run(self, what: str, call: Callable[[Any], Any], limit: timedelta) -> None:
        """Waits until this process's part of a call is done, for as long as its options say, or the group where they do not."""
        if self._group is None:
            why = f": {self._broken}" if self._broken is not None else ""
            raise RuntimeError(
                f"collective group `{self.group_name}` is over{why}. Its members are to call destroy_collective_group(), "
                "and to make it again"
            )
        timeout = self._timeout if limit == types.unset_timeout_ms else limit
        try:
            call(self._group).wait(timeout)
        except RuntimeError as error:
            self._broken = error
            self.destroy_group()
            raise RuntimeError(
                f"{what}() of rank {self.rank} of {self.world_size} in collective group `{self.group_name}` failed: {error}. "
                "A member has ended, called something else, or did not come within "
                f"{timeout.total_seconds():g} s. The group is over: call destroy_collective_group(), and make it again"
            ) from error

    def _tensor(self, given: Any, is_read: bool = False) -> torch.Tensor:
        """The same memory as a tensor."""
        if isinstance(given, np.ndarray):
            if not given.flags.writeable:
                if is_read:
                    given = given.copy()
                else:
                    raise ValueError(
                        "a collective call writes into its array, and this one is read-only, as arrays are that ray.get() "
                        "returns: pass a copy (`array.copy()`)"
                    )
            given = torch.from_numpy(given)
        elif not isinstance(given, torch.Tensor):
            # CuPy's arrays and others, without a copy.
            given = torch.from_dlpack(given)
        self._check(given)
        return given

    def _in_place(
        self, what: str, given: Any, call: Callable[[Any, torch.Tensor], Any], limit: timedelta, is_read: bool = False
    ) -> None:
        """A call that needs its tensor in one piece."""
        tensor = self._tensor(given, is_read)
        whole = tensor.contiguous()
        self._run(what, lambda group: call(group, whole), limit)
        if whole is not tensor and not is_read:
            tensor.copy_(whole)

    def allreduce(self, tensor: Any, allreduce_options: types.AllReduceOptions = types.AllReduceOptions()) -> None:
        options = dist.AllreduceOptions()
        options.reduceOp = _REDUCTIONS[allreduce_options.reduceOp]
        limit = allreduce_options.timeout_ms
        self._in_place("allreduce", _one(tensor), lambda group, whole: group.allreduce([whole], options), limit)

    def barrier(self, barrier_options: types.BarrierOptions = types.BarrierOptions()) -> None:
        self._run("barrier", lambda group: group.barrier(), barrier_options.timeout_ms)

    def reduce(self, tensor: Any, reduce_options: types.ReduceOptions = types.ReduceOptions()) -> None:
        options = dist.ReduceOptions()
        options.reduceOp = _REDUCTIONS[reduce_options.reduceOp]
        options.rootRank = reduce_options.root_rank
        limit = reduce_options.timeout_ms
        self._in_place("reduce", _one(tensor), lambda group, whole: group.reduce([whole], options), limit)

    def broadcast(self, tensor: Any, broadcast_options: types.BroadcastOptions = types.BroadcastOptions()) -> None:
        options = dist.BroadcastOptions()
        options.rootRank = broadcast_options.root_rank
        is_read, limit = broadcast_options.root_rank == self.rank, broadcast_options.timeout_ms
        self._in_place("broadcast", _one(tensor), lambda group, whole: group.broadcast([whole], options), limit, is_read)

    def allgather(
        self, tensor_list: Any, tensor: Any, allgather_options: types.AllGatherOptions = types.AllGatherOptions()
    ) -> None:
        into = [self._tensor(one) for one in self._of_all(_one(tensor_list), "allgather")]
        own = self._tensor(_one(tensor), is_read=True).contiguous()
        wholes = [one.contiguous() for one in into]
        self._run("allgather", lambda group: group.allgather([wholes], [own]), allgather_options.timeout_ms)
        _copy_back(into, wholes)

    def reducescatter(
        self,
        tensor: Any,
        tensor_list: Any,
        reducescatter_options: types.ReduceScatterOptions = types.ReduceScatterOptions(),
    ) -> None:
        options = dist.ReduceScatterOptions()
        options.reduceOp = _REDUCTIONS[reducescatter_options.reduceOp]
        parts = self._of_all(_one(tensor_list), "reducescatter")
        wholes = [self._tensor(one, is_read=True).contiguous() for one in parts]
        limit = reducescatter_options.timeout_ms
        self._in_place(
            "reducescatter", _one(tensor), lambda group, whole: group.reduce_scatter([whole], [wholes], options), limit
        )

    def send(self, tensor: Any, send_options: types.SendOptions) -> None:
        rank, limit = send_options.dst_rank, send_options.timeout_ms
        self._in_place("send", _one(tensor), lambda group, whole: group.send([whole], rank, 0), limit, is_read=True)

    def recv(self, tensor: Any, recv_options: types.RecvOptions) -> None:
        rank, limit = recv_options.src_rank, recv_options.timeout_ms
        self._in_place("recv", _one(tensor), lambda group, whole: group.recv([whole], rank, 0), limit)

    def _of_all(self, tensors: Sequence[Any], what: str) -> Sequence[Any]:
        if len(tensors) != self.world_size:
            raise RuntimeError(
                f"{what}() takes a list with a tensor of each member: the list has {len(tensors)}, and collective group "
                f"`{self.group_name}` has {self.world_size} members"
            )
        return tensors


def _one(tensors: Any) -> Any:
    """Of a list with one entry, as backends are called, that entry."""
    return tensors[0] if isinstance(tensors, list) and len(tensors) == 1 else tensors


def _copy_back(tensors: Sequence[torch.Tensor], wholes: Sequence[torch.Tensor]) -> None:
    for tensor, whole in zip(tensors, wholes, strict=True):
        if whole is not tensor:
            tensor.copy_(whole)
