"""Tasks that wait for tasks: they never stand in each other's way, and need no more processes than they are deep."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import ray
from watching import wait_until

pytestmark = pytest.mark.usefixtures("cluster")


@ray.remote
def tree(depth: int, width: int) -> set[int]:
    """The processes of a tree of tasks."""
    pids = {os.getpid()}
    if depth:
        pids.update(*ray.get([tree.remote(depth - 1, width) for _ in range(width)]))
    return pids


@ray.remote
def chain(length: int) -> int:
    return 0 if length == 0 else 1 + ray.get(chain.remote(length - 1))


@pytest.mark.parametrize(("depth", "width"), [(8, 2), (3, 6)])
def test_a_tree_of_tasks_is_walked_depth_first(depth, width) -> None:
    tasks = (width ** (depth + 1) - 1) // (width - 1)
    pids = ray.get(tree.remote(depth, width), timeout=110)
    assert len(pids) < tasks / 3, f"{tasks} tasks took {len(pids)} processes"


def test_a_chain_far_longer_than_there_are_cpus() -> None:
    assert ray.get(chain.remote(120), timeout=110) == 120


def test_several_trees_at_once() -> None:
    trees = [tree.remote(4, 2) for _ in range(4)]
    assert all(ray.get(trees, timeout=110))


def test_what_nested_tasks_asked_for_does_not_starve_the_driver(tmp_path: Path) -> None:
    """Tasks that are made by tasks go first, but a driver's are served between them once there is room."""

    @ray.remote(num_cpus=0)
    def make_many(begun: Path, enough: Path) -> int:
        made = 0
        while not enough.exists():
            ray.get([chain.remote(0) for _ in range(8)])
            made += 8
            begun.touch()
        return made

    begun = tmp_path / "begun"
    busy = make_many.remote(begun, tmp_path / "enough")
    wait_until(begun.exists)
    mine = [chain.remote(0) for _ in range(20)]
    assert ray.get(mine, timeout=60) == [0] * 20, "they do not wait for the others' end"
    (tmp_path / "enough").touch()
    assert ray.get(busy, timeout=60) > 0
