"""Large objects made on one node and read on others: fetched once, deleted everywhere, lost with their node."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from oxiray import _core
from ray.cluster_utils import Cluster, Node

from nodes import three_nodes
from watching import wait_until

np = pytest.importorskip("numpy")

MIB = 1 << 20


@pytest.fixture(scope="module")
def nodes(over_network: bool) -> Iterator[list[Node]]:
    with three_nodes() as nodes:
        yield nodes


@ray.remote
def make(mib: int, seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, mib * MIB, dtype=np.uint8)


@ray.remote
def total(array: Any) -> int:
    return int(array.sum())


@ray.remote
def total_of(references: list[Any]) -> int:
    return sum(int(ray.get(reference).sum()) for reference in references)


def expected(mib: int, seed: int) -> int:
    return int(np.random.default_rng(seed).integers(0, 256, mib * MIB, dtype=np.uint8).sum())


def on(task: Any, node: str) -> Any:
    return task.options(resources={node: 0.1}, num_cpus=0)


@pytest.mark.parametrize("source", ["head", "first"])
@pytest.mark.parametrize("reader", ["head", "first", "second"])
def test_an_object_is_read_on_any_node(nodes: list[Node], source: str, reader: str) -> None:
    reference = on(make, source).remote(5, 1)
    assert ray.get(on(total, reader).remote(reference)) == expected(5, 1)


def test_the_driver_reads_what_members_made(nodes: list[Node]) -> None:
    made = [on(make, node).remote(3, seed) for seed, node in enumerate(("first", "second", "head"))]
    assert [int(array.sum()) for array in ray.get(made)] == [expected(3, seed) for seed in range(3)]


def test_what_the_driver_put_is_read_everywhere(nodes: list[Node]) -> None:
    reference = ray.put(np.full(4 * MIB, 7, dtype=np.uint8))
    readers = [on(total, node).remote(reference) for node in ("head", "first", "second") for _ in range(3)]
    assert set(ray.get(readers)) == {4 * MIB * 7}


def test_references_inside_of_values_are_followed(nodes: list[Node]) -> None:
    made = [on(make, node).remote(2, seed) for seed, node in enumerate(("first", "second", "head", "first"))]
    for node in ("head", "first", "second"):
        assert ray.get(on(total_of, node).remote(made)) == sum(expected(2, seed) for seed in range(4))


def test_actors_on_other_nodes_pass_large_values(nodes: list[Node]) -> None:
    @ray.remote(num_cpus=0)
    class Keeper:
        def __init__(self, array: Any) -> None:
            self.array = array

        def get(self) -> Any:
            return self.array

    keeper = Keeper.options(resources={"first": 0.1}).remote(on(make, "second").remote(3, 5))
    assert ray.get(on(total, "second").remote(keeper.get.remote())) == expected(3, 5)
    assert int(ray.get(keeper.get.remote()).sum()) == expected(3, 5)


def test_many_objects_cross_at_once(nodes: list[Node]) -> None:
    made = [on(make, node).remote(1, seed) for seed in range(20) for node in ("first", "second")]
    swapped = [on(total, node).remote(reference) for reference, node in zip(made, ("second", "first") * 20, strict=True)]
    assert ray.get(swapped) == [expected(1, seed) for seed in range(20) for _ in range(2)]


def test_what_is_given_up_on_its_way_spoils_nothing_else(nodes: list[Node]) -> None:
    """Readers die and objects go while bytes travel; whatever is written where those were is whole."""

    @ray.remote
    class Reader:
        def begin(self) -> int:
            return os.getpid()

        def read(self, references: list[Any]) -> int:
            return len(ray.get(references[0]))

    for seed in range(4):
        given_up = on(make, "first").remote(48, seed)
        ray.wait([given_up], fetch_local=False)
        reader = on(Reader, "second").remote()
        ray.get(reader.begin.remote())
        reading = reader.read.remote([given_up])
        if seed % 2:
            ray.wait([reading], timeout=0.02)
        ray.kill(reader)
        del given_up, reading
        array = ray.get(on(make, "first").remote(17, seed))
        assert np.array_equal(array, np.random.default_rng(seed).integers(0, 256, 17 * MIB, dtype=np.uint8))


def test_copies_go_with_the_object(nodes: list[Node]) -> None:
    # Every store has 150 MiB: 20 rounds of 30 MiB only fit where copies are deleted.
    for seed in range(20):
        reference = on(make, "first").remote(30, seed)
        assert ray.get(on(total, "second").remote(reference)) > 0
        assert len(ray.get(reference)) == 30 * MIB
        del reference


@ray.remote(num_cpus=0)
class Source:
    def make(self) -> Any:
        return np.ones(2 * MIB, dtype=np.uint8)


def test_what_only_a_dead_node_had_is_made_again_or_lost(over_network: bool) -> None:
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2}, connect=True)
    try:
        node = cluster.add_node(num_cpus=2, resources={"there": 4})
        actor = Source.options(resources={"there": 0.1}).remote()
        lost = actor.make.remote()
        again = on(make, "there").remote(2, 9)
        read = on(make, "there").remote(2, 3)
        ray.wait([lost, again, read], num_returns=3, fetch_local=False)
        assert int(ray.get(read).sum()) == expected(2, 3)
        cluster.remove_node(node, allow_graceful=False)
        # The driver's node has a copy of what it read.
        assert int(ray.get(read).sum()) == expected(2, 3)
        with pytest.raises(ray.exceptions.ObjectLostError):
            ray.get(lost)
        cluster.add_node(num_cpus=2, resources={"there": 4})
        assert int(ray.get(again).sum()) == expected(2, 9)
    finally:
        cluster.shutdown()


def has_both() -> bool:
    """Whether this node's store has two objects whole."""
    return [entry["place"] for entry in _core.holdings()[0]] == ["in memory"] * 2


@pytest.mark.parametrize("fetches", [True, False])
def test_wait_fetches_what_it_does_not_return_too(over_network: bool, fetches: bool) -> None:
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1}, connect=True)
    try:
        dying = cluster.add_node(num_cpus=1, resources={"there": 4})
        made = [make.options(resources={"there": 1}, num_cpus=0, max_retries=0).remote(2, seed) for seed in (1, 2)]
        assert ray.wait(made, num_returns=2, timeout=60, fetch_local=False)[1] == []
        ready, rest = ray.wait(made, num_returns=1, timeout=60, fetch_local=fetches)
        assert (ready, rest) == (made[:1], made[1:])
        if fetches:
            wait_until(has_both)
        cluster.remove_node(dying, allow_graceful=False)
        if fetches:
            assert [int(array.sum()) for array in ray.get(made, timeout=60)] == [expected(2, 1), expected(2, 2)]
        else:
            with pytest.raises(ray.exceptions.ObjectLostError):
                ray.get(made[1], timeout=60)
    finally:
        cluster.shutdown()
