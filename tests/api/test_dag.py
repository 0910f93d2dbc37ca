"""Calls that are bound first and executed later."""

from __future__ import annotations

import pytest
import ray
from ray.dag import DAGNode, InputNode, MultiOutputNode

pytestmark = pytest.mark.usefixtures("two_cpus")


@ray.remote
def add(left: int, right: int = 0) -> int:
    return left + right


@ray.remote(num_cpus=0)
class Counter:
    def __init__(self, start: int) -> None:
        self.count = start

    def inc(self, by: int) -> None:
        self.count += by

    def get(self) -> int:
        return self.count


def test_functions_share_what_they_depend_on(tmp_path) -> None:
    @ray.remote
    def once() -> int:
        with open(tmp_path / "calls", "a") as file:
            file.write("x")
        return 4

    shared = once.bind()
    node = add.bind(add.bind(shared, right=1), shared)
    assert isinstance(node, DAGNode)
    assert ray.get(node.execute(), timeout=60) == 9
    assert (tmp_path / "calls").read_text() == "x"
    assert ray.get(node.execute(), timeout=60) == 9
    assert (tmp_path / "calls").read_text() == "xx"


def test_actors_run_their_calls_in_the_order_bound() -> None:
    one, two = Counter.bind(10), Counter.options(num_cpus=0).bind(10)
    assert ray.get(one.get.bind().execute(), timeout=60) == 10
    one.inc.bind(2)
    one.inc.options(name="more").bind(add.bind(2, 2))
    two.inc.bind(6)
    assert ray.get(add.bind(one.get.bind(), two.get.bind()).execute(), timeout=60) == 32
    with pytest.raises(AttributeError, match="no method 'gone'"):
        one.gone  # noqa: B018


def test_a_method_of_a_living_actor() -> None:
    counter = Counter.remote(1)
    for expected in (2, 3):
        ray.get(counter.inc.bind(1).execute(), timeout=60)
        assert ray.get(add.bind(counter.get.bind()).execute(), timeout=60) == expected


def test_inputs_and_several_outputs() -> None:
    with InputNode() as given:
        node = MultiOutputNode([add.bind(given[0], given[1]), add.bind(given.by)])
        whole = add.bind(given, 1)
    assert ray.get(node.execute(1, 2, by=5), timeout=60) == [3, 5]
    assert ray.get(whole.execute(4), timeout=60) == 5
    assert ray.get(add.bind(given["a"]).execute({"a": 8}), timeout=60) == 8
    with pytest.raises(ValueError, match="'by'"):
        node.execute(1, 2)
    with pytest.raises(ValueError, match="one argument"):
        whole.execute(1, 2)


def test_nodes_within_containers_become_references() -> None:
    @ray.remote
    def total(parts: dict[str, list[ray.ObjectRef[int]]]) -> int:
        return sum(ray.get(parts["all"]))

    assert ray.get(total.bind({"all": [add.bind(1), add.bind(2)]}).execute(), timeout=60) == 3


def test_compiled_graphs_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="call execute"):
        add.bind(1).experimental_compile()
    with pytest.raises(ImportError, match="compiled graphs"):
        from ray.dag import CollectiveOutputNode  # noqa: F401
