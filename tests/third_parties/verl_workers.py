"""verl's layer over Ray, on processors: worker groups in resource pools, and what is dispatched to them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import ray
import torch
import torch.distributed
from verl import DataProto
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, Execute, register
from verl.single_controller.ray import (
    RayClassWithInitArgs,
    RayResourcePool,
    RayWorkerGroup,
    create_colocated_worker_cls,
)
from verl.single_controller.ray.base import split_resource_pool
from verl.utils.ray_utils import parallel_put


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    # Pools keep their placement groups.
    ray.init(num_cpus=32)
    yield
    ray.shutdown()


class Adder(Worker):
    """Adds its rank, and what it was made with."""

    def __init__(self, amount: int = 0) -> None:
        super().__init__()
        self.amount = amount

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def greet(self, word: str) -> str:
        return f"{word} from {self.rank} of {self.world_size}"

    @register(dispatch_mode=Dispatch.ALL_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def first(self) -> int:
        return self.rank

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def add(self, data: DataProto) -> DataProto:
        data.batch["value"] += self.rank * 100 + self.amount
        return data

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def later(self, number: int) -> int:
        return number + self.rank

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def fail(self) -> None:
        raise KeyError("gone")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def environment(self, names: list[str]) -> dict[str, str | None]:
        return {name: os.environ.get(name) for name in names}

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def sum_of_ranks(self) -> int:
        """All workers meet over the address that verl has given to each of them."""
        torch.distributed.init_process_group("gloo")
        try:
            total = torch.tensor([self.rank + 1])
            torch.distributed.all_reduce(total)
            return int(total.item())
        finally:
            torch.distributed.destroy_process_group()


class Doubler(Worker):
    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def double(self, data: DataProto) -> DataProto:
        data.batch["value"] *= 2
        return data

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def pid(self) -> int:
        return os.getpid()


def group(nodes: list[int], cls: type = Adder, **made_with: Any) -> RayWorkerGroup:
    pool = RayResourcePool(nodes, use_gpu=False, max_colocate_count=2)
    wanted = RayClassWithInitArgs(cls=ray.remote(cls), **made_with)
    return RayWorkerGroup(resource_pool=pool, ray_cls_with_init=wanted)


def numbers(count: int) -> DataProto:
    values = torch.arange(count)
    return DataProto.from_dict(tensors={"value": values}, non_tensors={"name": np.array([f"n{one}" for one in range(count)], dtype=object)})


def end(workers: RayWorkerGroup) -> None:
    for worker in workers.workers:
        ray.kill(worker)


@pytest.fixture(scope="module")
def four() -> Iterator[RayWorkerGroup]:
    made = group([4], amount=1)
    yield made
    end(made)


def test_everybody_hears_of_a_call(four: RayWorkerGroup) -> None:
    assert four.greet("hello") == [f"hello from {rank} of 4" for rank in range(4)]


def test_one_rank_is_asked(four: RayWorkerGroup) -> None:
    assert four.first() == 0
    assert four.execute_rank_zero_sync("greet", "hello") == "hello from 0 of 4"


def test_a_batch_is_divided_and_put_together(four: RayWorkerGroup) -> None:
    made = four.add(numbers(8))
    assert made.batch["value"].tolist() == [0 + 1, 1 + 1, 2 + 101, 3 + 101, 4 + 201, 5 + 201, 6 + 301, 7 + 301]
    assert made.non_tensor_batch["name"].tolist() == [f"n{one}" for one in range(8)]


def test_a_call_that_does_not_wait_gives_references(four: RayWorkerGroup) -> None:
    assert ray.get(four.later(10)) == [10, 11, 12, 13]


def test_each_has_its_place_in_its_environment(four: RayWorkerGroup) -> None:
    told = four.environment(["RANK", "WORLD_SIZE", "RAY_LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
    assert [(one["RANK"], one["WORLD_SIZE"], one["RAY_LOCAL_WORLD_SIZE"]) for one in told] == [(str(rank), "4", "4") for rank in range(4)]
    assert len({(one["MASTER_ADDR"], one["MASTER_PORT"]) for one in told}) == 1 and told[0]["MASTER_PORT"]


def test_workers_meet_over_their_process_group(four: RayWorkerGroup) -> None:
    assert four.sum_of_ranks() == [1 + 2 + 3 + 4] * 4


def test_several_roles_share_processes() -> None:
    pool = RayResourcePool([2], use_gpu=False, max_colocate_count=2)
    roles = {"adder": RayClassWithInitArgs(cls=ray.remote(Adder), amount=1), "doubler": RayClassWithInitArgs(cls=ray.remote(Doubler))}
    both = RayWorkerGroup(resource_pool=pool, ray_cls_with_init=create_colocated_worker_cls(class_dict=roles))
    parts = both.spawn(prefix_set=set(roles))
    made = parts["doubler"].double(parts["adder"].add(numbers(4)))
    assert made.batch["value"].tolist() == [2, 4, 2 * 103, 2 * 104]
    assert len(set(parts["doubler"].pid())) == 2
    end(both)


def test_a_pool_of_several_bundles_has_workers_in_all() -> None:
    workers = group([2, 2], amount=0)
    assert workers.world_size == 4
    assert workers.greet("here") == [f"here from {rank} of 4" for rank in range(4)]
    end(workers)


def test_a_pool_is_divided() -> None:
    pool = RayResourcePool([4], use_gpu=False, max_colocate_count=1)
    found = []
    for number, part in enumerate(split_resource_pool(pool, split_size=2)):
        workers = RayWorkerGroup(resource_pool=part, ray_cls_with_init=RayClassWithInitArgs(cls=ray.remote(Adder), amount=number))
        found.append(workers.add(numbers(2)).batch["value"].tolist())
        end(workers)
    assert found == [[0, 101], [1, 102]]


def test_a_group_is_found_by_the_names_of_its_workers() -> None:
    pool = RayResourcePool([2], use_gpu=False, max_colocate_count=1)
    made = RayWorkerGroup(
        resource_pool=pool, ray_cls_with_init=RayClassWithInitArgs(cls=ray.remote(Adder), amount=5), name_prefix="found", detached=True
    )
    again = RayWorkerGroup.from_detached(
        worker_names=made.worker_names, ray_cls_with_init=RayClassWithInitArgs(cls=ray.remote(Adder), amount=5)
    )
    assert again.add(numbers(2)).batch["value"].tolist() == [5, 106]
    end(made)


def test_an_exception_of_a_worker_comes_to_who_called(four: RayWorkerGroup) -> None:
    with pytest.raises(KeyError, match="gone"):
        four.fail()


def test_many_values_are_put_at_once() -> None:
    assert ray.get(parallel_put(list(range(20)), max_workers=4)) == list(range(20))
