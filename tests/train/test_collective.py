"""`ray.util.collective` over Gloo: values, groups made in both ways, and what becomes of a group whose member dies."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import ray
import torch
from ray.experimental.collective import create_collective_group as create_remotely
from ray.util import collective
from ray.util.collective import register_collective_backend
from ray.util.collective.collective_group.base_collective_group import BaseGroup
from ray.util.collective.types import Backend, BarrierOptions, ReduceOp
from watching import wait_until

#: For how long a call may take that is to fail at once, in seconds: far less than the group's own limit.
AT_ONCE_S = 30.0


#: PyTorch is imported once, by the process that the members are forked from.
WITH_TORCH = {"num_cpus": 0, "runtime_env": {"preload": ["torch"]}}


@ray.remote(**WITH_TORCH)
class Member:
    def pid(self) -> int:
        return os.getpid()

    def join(self, world_size: int, rank: int, **options: Any) -> None:
        collective.init_collective_group(world_size, rank, **{"backend": "gloo", **options})

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)


@pytest.fixture
def machine() -> Iterator[None]:
    if not ray.is_initialized():
        ray.init(num_cpus=8)
    yield
    for name in ray.util.list_named_actors():
        with contextlib.suppress(ValueError):
            ray.kill(ray.get_actor(name))
    wait_until(lambda: ray.util.list_named_actors(all_namespaces=True) == [])


@pytest.fixture
def group(machine: None) -> Callable[..., list[Any]]:
    """Actors that are members of a group: `group(3, group_name=...)`."""

    def make(size: int, **options: Any) -> list[Any]:
        members = [Member.remote() for _ in range(size)]
        ray.get([member.join.remote(size, rank, **options) for rank, member in enumerate(members)])
        return members

    return make


def everywhere(members: list[Any], function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What a function returns in each member, to which its rank is given first."""
    found: list[Any] = ray.get([member.run.remote(function, rank, *arguments) for rank, member in enumerate(members)])
    return found


def test_tensors_of_every_type_are_reduced(group: Any) -> None:
    def function(rank: int) -> dict[tuple[str, str], list[float]]:
        found = {}
        for dtype in (torch.float32, torch.float64, torch.int64, torch.bfloat16, torch.float16, torch.uint8):
            for op in ReduceOp:
                tensor = torch.full((3,), rank + 2, dtype=dtype)
                collective.allreduce(tensor, op=op)
                found[str(dtype), op.name] = tensor.tolist()
        return found

    expected = {"SUM": 9, "PRODUCT": 24, "MIN": 2, "MAX": 4}
    for found in everywhere(group(3), function):
        assert len(found) == 6 * 4
        assert {(dtype, op): values for (dtype, op), values in found.items() if values != [expected[op]] * 3} == {}


def test_arrays_are_worked_on_where_they_lie(group: Any) -> None:
    def function(rank: int) -> Any:
        array = np.arange(12, dtype=np.float32).reshape(3, 4) + rank
        # A part that is not in one piece, as an array and as a tensor.
        collective.allreduce(array[:, 1:3])
        collective.allreduce(torch.from_numpy(array)[:, 0])
        return array

    alone = np.arange(12, dtype=np.float32).reshape(3, 4)
    for rank, array in enumerate(everywhere(group(2), function)):
        expected = alone + rank
        expected[:, :3] = 2 * alone[:, :3] + 1
        assert (array == expected).all()


def test_every_call_does_what_its_name_says(group: Any) -> None:
    def function(rank: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        tensor = torch.tensor([float(rank), 10.0 * rank])
        collective.reduce(tensor, dst_rank=1)
        found["reduce"] = tensor.tolist() if rank == 1 else None
        tensor = np.full(2, rank)
        collective.broadcast(tensor, src_rank=2)
        found["broadcast"] = tensor.tolist()
        into = [torch.zeros(2) for _ in range(3)]
        collective.allgather(into, torch.tensor([rank, rank + 0.5]))
        found["allgather"] = [one.tolist() for one in into]
        mine = torch.zeros(2)
        collective.reducescatter(mine, [torch.full((2,), 10.0 * rank + part) for part in range(3)])
        found["reducescatter"] = mine.tolist()
        if rank == 0:
            collective.send(np.array([1, 2, 3]), 2)
        if rank == 2:
            array = np.zeros(3, dtype=np.int64)
            collective.recv(array, 0)
            found["recv"] = array.tolist()
        collective.barrier()
        found["place"] = (collective.get_rank(), collective.get_collective_group_size(), collective.is_group_initialized("default"))
        return found

    told = everywhere(group(3), function)
    assert told[1]["reduce"] == [3.0, 30.0]
    assert [one["broadcast"] for one in told] == [[2, 2]] * 3
    assert [one["allgather"] for one in told] == [[[0.0, 0.5], [1.0, 1.5], [2.0, 2.5]]] * 3
    assert [one["reducescatter"] for one in told] == [[30.0 + 3 * rank] * 2 for rank in range(3)]
    assert told[2]["recv"] == [1, 2, 3]
    assert [one["place"] for one in told] == [(rank, 3, True) for rank in range(3)]


def test_a_group_is_declared_by_the_driver_and_made_by_the_first_call(machine: None) -> None:
    members = [Member.remote() for _ in range(3)]
    collective.create_collective_group(members, 3, [2, 0, 1], backend="gloo", group_name="declared")

    def function(_: int) -> tuple[int, list[float]]:
        assert collective.get_rank("declared") == -1
        tensor = torch.ones(1)
        collective.allreduce(tensor, "declared")
        return collective.get_rank("declared"), tensor.tolist()

    assert everywhere(members, function) == [(rank, [3.0]) for rank in (2, 0, 1)]
    with pytest.raises(RuntimeError, match="Trying to initialize a group twice"):
        collective.create_collective_group(members, 3, [0, 1, 2], backend="gloo", group_name="declared")
    everywhere(members, lambda _: collective.destroy_collective_group("declared"))
    collective.create_collective_group(members, 3, [0, 1, 2], backend="gloo", group_name="declared")
    assert everywhere(members, function) == [(rank, [3.0]) for rank in (0, 1, 2)]


def test_torch_gloo_is_the_name_that_gloo_had(machine: None) -> None:
    members = [Member.remote() for _ in range(2)]
    assert collective.is_backend_available("torch_gloo")
    ray.get([member.join.remote(2, rank, backend="torch_gloo") for rank, member in enumerate(members)])
    collective.create_collective_group(members, 2, [0, 1], backend="torch_gloo", group_name="declared by its old name")
    handle = create_remotely(members, backend="torch_gloo")
    assert handle.backend == Backend.GLOO

    def function(_: int, name: str) -> list[float]:
        tensor = torch.ones(1)
        collective.allreduce(tensor, name)
        return tensor.tolist()

    for name in ("default", "declared by its old name", handle.name):
        assert ray.get([member.run.remote(function, rank, name) for rank, member in enumerate(members)]) == [[2.0], [2.0]]
    with pytest.raises(ValueError, match="already registered"):
        register_collective_backend("torch_gloo", BaseGroup)


def test_a_process_is_in_several_groups_beside_torchs_own(group: Any) -> None:
    members = group(2, group_name="one")
    # Nothing is left of how they met.
    wait_until(lambda: ray.util.list_named_actors(all_namespaces=True) == [])
    ray.get([member.join.remote(2, 1 - rank, group_name="other") for rank, member in enumerate(members)])

    def function(rank: int) -> tuple[bool, list[int], list[int]]:
        is_torchs = torch.distributed.is_initialized()
        one, other = torch.tensor([rank]), torch.tensor([rank])
        collective.broadcast(one, 0, "one")
        collective.broadcast(other, 0, "other")
        return is_torchs, one.tolist(), other.tolist()

    assert everywhere(members, function) == [(False, [0], [1])] * 2


def test_tasks_are_members_too(machine: None) -> None:
    @ray.remote(**WITH_TORCH)
    def member(rank: int) -> list[float]:
        collective.init_collective_group(2, rank, "gloo", "of tasks")
        tensor = torch.tensor([rank + 1.0])
        collective.allreduce(tensor, "of tasks")
        collective.destroy_collective_group("of tasks")
        return tensor.tolist()

    assert ray.get([member.remote(rank) for rank in range(2)]) == [[3.0], [3.0]]


def test_a_death_ends_the_calls_of_the_others_at_once_and_the_group_is_made_again(group: Any) -> None:
    members = group(4, gloo_timeout=60_000)

    def function(rank: int) -> str:
        try:
            collective.allreduce(torch.ones(1 << 16))
        except RuntimeError as error:
            return str(error)
        return "it ended"

    begun = time.monotonic()
    waiting = [member.run.remote(function, rank) for rank, member in enumerate(members) if rank != 2]
    os.kill(ray.get(members[2].pid.remote()), signal.SIGKILL)
    errors = ray.get(waiting, timeout=AT_ONCE_S)
    assert time.monotonic() - begun < AT_ONCE_S
    assert all("allreduce() of rank" in error and "A member has ended" in error for error in errors), errors
    with pytest.raises(RuntimeError, match="is over"):
        ray.get(members[0].run.remote(lambda: collective.barrier()))
    living = [members[0], members[1], members[3], Member.remote()]
    ray.get([member.run.remote(collective.destroy_collective_group) for member in living])
    ray.get([member.join.remote(4, rank) for rank, member in enumerate(living)])
    assert everywhere(living, function) == ["it ended"] * 4


def test_who_does_not_come_is_missed_in_time(machine: None) -> None:
    first, second = Member.remote(), Member.remote()
    with pytest.raises(RuntimeError, match=r"rank 1 of 2 has waited 0.5 s for rank 0"):
        ray.get(second.join.remote(2, 1, gloo_timeout=500))
    with pytest.raises(RuntimeError, match=r"rank 0 of 2 found rank 0 and did not find all others within 0.5 s"):
        ray.get(first.join.remote(2, 0, group_name="another", gloo_timeout=500))


def test_a_call_waits_for_as_long_as_its_options_say(group: Any) -> None:
    def function() -> str:
        options = BarrierOptions()
        options.timeout_ms = timedelta(milliseconds=300)
        begun = time.monotonic()
        with pytest.raises(RuntimeError) as caught:
            collective.get_group_handle().barrier(options)
        assert time.monotonic() - begun < AT_ONCE_S
        return str(caught.value)

    assert "did not come within 0.3 s" in ray.get(group(2)[0].run.remote(function))


def test_what_cannot_be_is_refused_with_the_way_out(group: Any) -> None:
    members = group(2)

    def refused(call: Callable[[], Any]) -> str:
        with pytest.raises((RuntimeError, ValueError)) as caught:
            call()
        return f"{type(caught.value).__name__}: {caught.value}"

    def function(rank: int) -> list[str]:
        kept = ray.get(ray.put(np.zeros(1 << 16)))
        calls = [
            lambda: collective.allreduce(kept),
            lambda: collective.allreduce([1.0]),
            lambda: collective.allgather([torch.zeros(1)], torch.zeros(1)),
            lambda: collective.allgather([], torch.zeros(1)),
            lambda: collective.send(torch.zeros(1), rank),
            lambda: collective.broadcast(torch.zeros(1), 2),
            lambda: collective.reduce(torch.zeros(1), -1),
            lambda: collective.init_collective_group(2, rank, "gloo"),
            lambda: collective.init_collective_group(2, 2, "gloo", "x"),
            lambda: collective.init_collective_group(2, 0, "nccl", "x"),
            lambda: collective.init_collective_group(2, 0, "of nobody", "x"),
            lambda: collective.barrier("nowhere"),
            lambda: collective.allreduce_multigpu([torch.zeros(1)]),
        ]
        return [refused(call) for call in calls]

    told = ray.get(members[0].run.remote(function, 0))
    begins = (
        "ValueError: a collective call writes into its array, and this one is read-only",
        "RuntimeError: Unrecognized tensor type",
        "RuntimeError: allgather() takes a list with a tensor of each member: the list has 1,",
        "RuntimeError: Got an empty list",
        "RuntimeError: The destination rank '0' is self.",
        "ValueError: rank '2' must be less than world size '2'",
        "ValueError: rank '-1' is negative.",
        "RuntimeError: Trying to initialize a group a second time",
        "ValueError: rank=2 with world_size=2",
        "RuntimeError: Backend NCCL is not available.",
        "ValueError: Backend OF NOBODY not registered",
        "RuntimeError: The collective group 'nowhere' is not initialized in the process",
        "RuntimeError: Multigpu calls requires NCCL and Cupy.",
    )
    assert [text for text, begin in zip(told, begins, strict=True) if not text.startswith(begin)] == []
    assert refused(lambda: collective.allreduce(torch.zeros(1))).startswith("RuntimeError: The collective APIs shall be only used")
    assert refused(lambda: collective.create_collective_group(members, 2, [0], "gloo")).startswith("RuntimeError: Each actor should")
    assert refused(lambda: collective.create_collective_group(members, 2, [0, 2], "gloo")).startswith("RuntimeError: Ranks must be")


class Counting(BaseGroup):
    """A backend of others: it counts what it is asked for."""

    @classmethod
    def backend(cls) -> str:
        return "COUNTING"

    @classmethod
    def check_backend_availability(cls) -> bool:
        return True

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        self.calls: list[str] = []

    def allreduce(self, tensor: Any, allreduce_options: Any = None) -> None:
        self.calls.append(f"allreduce {allreduce_options.reduceOp.name} {len(tensor)}")

    def barrier(self, barrier_options: Any = None) -> None:
        self.calls.append("barrier")

    def reduce(self, tensor: Any, reduce_options: Any = None) -> None: ...
    def allgather(self, tensor_list: Any, tensor: Any, allgather_options: Any = None) -> None: ...
    def broadcast(self, tensor: Any, broadcast_options: Any = None) -> None: ...
    def reducescatter(self, tensor: Any, tensor_list: Any, reducescatter_options: Any = None) -> None: ...
    def send(self, tensor: Any, send_options: Any) -> None: ...
    def recv(self, tensor: Any, recv_options: Any) -> None: ...


def test_a_backend_of_others_is_called(machine: None) -> None:
    def function(backend: type[BaseGroup]) -> tuple[list[str], str]:
        collective.register_collective_backend("counting", backend)
        collective.init_collective_group(1, 0, Backend("counting"), "counted")
        collective.allreduce(np.zeros(1), "counted", ReduceOp.MAX)
        collective.barrier("counted")
        with pytest.raises(ValueError, match="already registered"):
            collective.register_collective_backend("Counting", backend)
        with pytest.raises(TypeError, match="not a subclass of BaseGroup"):
            collective.register_collective_backend("other", dict)
        return collective.get_group_handle("counted").calls, Backend.COUNTING

    assert ray.get(Member.remote().run.remote(function, Counting)) == (["allreduce MAX 1", "barrier"], "COUNTING")
    assert collective.gloo_available() and not collective.nccl_available() and not collective.is_backend_available("none")
