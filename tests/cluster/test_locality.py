"""Work goes to the node where the large objects lie that it reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import ray

from nodes import three_nodes
from watching import wait_until

np = pytest.importorskip("numpy")

MIB = 1 << 20


@pytest.fixture(scope="module")
def names(over_network: bool) -> Iterator[dict[str, str]]:
    """The name of each node by its id."""
    with three_nodes() as nodes:
        yield {node.node_id: name for node, name in zip(nodes, ("head", "first", "second"), strict=True)}


@ray.remote
def make(mib: int) -> Any:
    return np.ones(mib * MIB, dtype=np.uint8)


@ray.remote
def place(*arrays: Any) -> str:
    assert all(array[-1] == 1 for array in arrays)
    return str(ray.get_runtime_context().get_node_id())


def made(mib: int, node: str) -> Any:
    reference = make.options(resources={node: 0.1}, num_cpus=0).remote(mib)
    ray.wait([reference], fetch_local=False)
    # The owner hears of the object from its worker, and the head from the worker's node, which may come later.
    wait_until(lambda: ray.experimental.get_object_locations([reference])[reference]["node_ids"])
    return reference


@pytest.mark.parametrize("node", ["head", "first", "second"])
def test_a_task_runs_where_its_large_argument_lies(names: dict[str, str], node: str) -> None:
    array = made(100, node)
    assert [names[ray.get(place.remote(array))] for _ in range(3)] == [node] * 3


def test_each_task_goes_to_its_own_argument(names: dict[str, str]) -> None:
    nodes = ["first", "second", "head"] * 3
    arrays = [made(3, node) for node in nodes]
    assert [names[ray.get(place.remote(array))] for array in arrays] == nodes
    assert [names[where] for where in ray.get([place.remote(array) for array in arrays[:2]])] == nodes[:2]


def test_where_most_bytes_lie_comes_first(names: dict[str, str]) -> None:
    large, small, more = made(40, "first"), made(30, "second"), made(20, "second")
    assert names[ray.get(place.remote(large, small))] == "first"
    # Two thirds of these are on the second node, now that the first has copies of what the last task read.
    others = made(30, "second"), made(20, "second")
    assert names[ray.get(place.remote(large, *others))] == "second"
    del more


def test_what_the_driver_put_is_read_beside_it(names: dict[str, str]) -> None:
    array = ray.put(np.ones(20 * MIB, dtype=np.uint8))
    assert names[ray.get(place.remote(array))] == "head"


def test_an_actor_is_made_where_its_constructors_argument_lies(names: dict[str, str]) -> None:
    @ray.remote
    class Actor:
        def __init__(self, array: Any) -> None:
            self.array = array

        def place(self) -> str:
            return str(ray.get_runtime_context().get_node_id())

    for node in ("second", "first"):
        actor = Actor.remote(made(30, node))
        assert names[ray.get(actor.place.remote())] == node
        ray.kill(actor)


def test_a_node_without_room_is_not_waited_for(names: dict[str, str]) -> None:
    @ray.remote
    class Holder:
        def ready(self) -> bool:
            return True

    array = made(20, "first")
    holder = Holder.options(num_cpus=2, resources={"first": 0.1}).remote()
    assert ray.get(holder.ready.remote())
    assert names[ray.get(place.remote(array))] != "first"
    ray.kill(holder)


def test_a_strategy_comes_before_where_arguments_lie(names: dict[str, str]) -> None:
    array = made(20, "first")
    assert names[ray.get(place.options(resources={"second": 0.1}).remote(array))] == "second"
    affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    head = next(node for node, name in names.items() if name == "head")
    assert names[ray.get(place.options(scheduling_strategy=affinity(head, soft=False)).remote(array))] == "head"
