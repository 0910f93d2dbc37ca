"""OpenRLHF's layer over Ray, on processors: groups of actors on GPUs that are counted only, and what is handed to them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

STAND_INS = str(Path(__file__).parent / "stand_ins")
sys.path.insert(0, STAND_INS)

import torch.distributed  # noqa: E402
from openrlhf.trainer.ray.launcher import BaseModelActor, RayActorGroup  # noqa: E402
from openrlhf.trainer.ray.utils import get_bundle_indices  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    # Workers import what this program does.
    os.environ["PYTHONPATH"] = os.pathsep.join([STAND_INS, os.environ.get("PYTHONPATH", "")])
    ray.init(num_cpus=8, num_gpus=4)
    yield
    ray.shutdown()


class Strategy:
    def is_rank_0(self) -> bool:
        return False


@ray.remote(num_gpus=1)
class Model(BaseModelActor):
    def init_model_from_pretrained(self, offset: int) -> int:
        self.strategy, self.offset = Strategy(), offset
        return self._rank

    def forward(self, number: int) -> list[int]:
        return [number + self.offset, self._rank]

    def place(self) -> dict[str, str | None]:
        return {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")}

    def sum_of_ranks(self) -> int:
        """All actors meet over the address that OpenRLHF has given to each of them."""
        torch.distributed.init_process_group("gloo")
        total = torch.tensor([self._rank + 1])
        torch.distributed.all_reduce(total)
        torch.distributed.destroy_process_group()
        return int(total.item())

    def bundle(self) -> str | None:
        group = ray.util.get_current_placement_group()
        return None if group is None else group.id.hex()


def end(group: RayActorGroup) -> None:
    for actor in group._actor_handlers:
        ray.kill(actor)


@pytest.fixture(scope="module")
def group() -> Iterator[RayActorGroup]:
    made = RayActorGroup(1, 2, Model)
    assert ray.get(made.async_init_model_from_pretrained(100)) == [0, 1]
    yield made
    end(made)


def test_each_has_its_place(group: RayActorGroup) -> None:
    places = ray.get(group.async_run_method("place"))
    assert [(place["RANK"], place["WORLD_SIZE"], place["LOCAL_RANK"]) for place in places] == [("0", "2", "0"), ("1", "2", "0")]
    assert len({(place["MASTER_ADDR"], place["MASTER_PORT"]) for place in places}) == 1 and places[0]["MASTER_PORT"]


def test_a_batch_is_divided(group: RayActorGroup) -> None:
    parts = ray.get(group.async_run_method_batch("forward", number=list(range(5))))
    assert [one for part in parts for one in part] == [[100, 0], [101, 0], [102, 0], [103, 1], [104, 1]]


def test_a_batch_that_is_too_small_is_refused(group: RayActorGroup) -> None:
    with pytest.raises(ValueError, match="Insufficient batch size"):
        group.async_run_method_batch("forward", number=[1])


def test_actors_meet_in_a_group_of_processes(group: RayActorGroup) -> None:
    assert ray.get(group.async_run_method("sum_of_ranks")) == [3, 3]


def test_groups_share_the_bundles_of_a_placement_group() -> None:
    from ray.util.placement_group import placement_group, remove_placement_group

    bundles = placement_group([{"GPU": 1, "CPU": 1}] * 2, strategy="PACK")
    ray.get(bundles.ready())
    groups = [RayActorGroup(1, 2, Model, pg=bundles, num_gpus_per_actor=0.4) for _ in range(2)]
    assert get_bundle_indices(bundles, 0, 2) == [0, 1]
    assert {place for one in groups for place in ray.get(one.async_run_method("bundle"))} == {bundles.id.hex()}
    for one in groups:
        end(one)
    remove_placement_group(bundles)
