"""Scheduling strategies and label selectors where there is one machine: what it allows, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import ray
from ray.util.scheduling_strategies import (
    DoesNotExist,
    Exists,
    In,
    NodeAffinitySchedulingStrategy as Affinity,
    NodeLabelSchedulingStrategy as Labels,
    NotIn,
)

NOWHERE = "ab" * 28


@pytest.fixture(scope="module", autouse=True)
def machine() -> Iterator[None]:
    ray.shutdown()
    ray.init(num_cpus=2, labels={"zone": "a", "rack": "7"})
    yield
    ray.shutdown()


@ray.remote
def where() -> str:
    return ray.get_runtime_context().get_node_id()


@ray.remote
class Somewhere:
    def where(self) -> str:
        return ray.get_runtime_context().get_node_id()


def here() -> str:
    return ray.get_runtime_context().get_node_id()


@pytest.mark.parametrize("strategy", [None, "DEFAULT", "SPREAD"])
def test_named_strategies_run(strategy: str | None) -> None:
    tasks = [where.options(scheduling_strategy=strategy).remote() for _ in range(20)]
    assert set(ray.get(tasks)) == {here()}
    actor = Somewhere.options(scheduling_strategy=strategy).remote()
    assert ray.get(actor.where.remote()) == here()


@ray.remote(scheduling_strategy="SPREAD")
def increment(value: int) -> int:
    return value + 1


def test_spread_tasks_may_need_what_others_of_their_kind_make() -> None:
    value = increment.remote(0)
    for _ in range(5):
        value = increment.remote(value)
    assert ray.get([increment.remote(value) for _ in range(4)], timeout=60) == [7] * 4


@pytest.mark.parametrize("soft", [True, False])
def test_an_affinity_to_this_machine_is_met(soft: bool) -> None:
    strategy = Affinity(here(), soft=soft)
    assert ray.get(where.options(scheduling_strategy=strategy).remote()) == here()
    actor = Somewhere.options(scheduling_strategy=strategy).remote()
    assert ray.get(actor.where.remote()) == here()


def test_a_hard_affinity_to_no_machine_fails_with_the_reason() -> None:
    strategy = Affinity(NOWHERE, soft=False)
    with pytest.raises(ray.exceptions.TaskUnschedulableError, match=f"machine {NOWHERE}, which is dead or never was"):
        ray.get(where.options(scheduling_strategy=strategy).remote())
    actor = Somewhere.options(scheduling_strategy=strategy).remote()
    with pytest.raises(ray.exceptions.ActorUnschedulableError, match="pass soft=True"):
        ray.get(actor.where.remote())


def test_a_soft_affinity_to_no_machine_runs_elsewhere() -> None:
    strategy = Affinity(NOWHERE, soft=True)
    assert ray.get(where.options(scheduling_strategy=strategy).remote()) == here()


def test_an_affinity_can_refuse_to_wait() -> None:
    @ray.remote(num_cpus=2)
    class All:
        def ready(self) -> bool:
            return True

    holder = All.remote()
    assert ray.get(holder.ready.remote())
    strategy = Affinity(here(), soft=False, _fail_on_unavailable=True)
    with pytest.raises(ray.exceptions.TaskUnschedulableError, match="which is busy: 1 CPU asked for, 0 of 2 free"):
        ray.get(where.options(scheduling_strategy=strategy).remote())
    del holder


@pytest.mark.parametrize(
    "hard",
    [
        {"zone": In("a", "b")},
        {"zone": NotIn("b")},
        {"rack": Exists()},
        {"gpu": DoesNotExist()},
        {"zone": In("a"), "rack": In("7")},
    ],
)
def test_labels_that_this_machine_has(hard: dict[str, object]) -> None:
    assert ray.get(where.options(scheduling_strategy=Labels(hard)).remote()) == here()


def test_labels_that_no_machine_has() -> None:
    with pytest.raises(ray.exceptions.TaskUnschedulableError, match=r"`zone` in \(b\), but no machine has such labels"):
        ray.get(where.options(scheduling_strategy=Labels({"zone": In("b")})).remote())
    preferred = Labels({"zone": In("a")}, soft={"rack": In("8")})
    assert ray.get(where.options(scheduling_strategy=preferred).remote()) == here()


@pytest.mark.parametrize("selector", ["a", "!b", "in(a, b)", "!in(b,c)"])
def test_selectors_that_match(selector: str) -> None:
    assert ray.get(where.options(label_selector={"zone": selector}).remote()) == here()
    actor = Somewhere.options(label_selector={"zone": selector}).remote()
    assert ray.get(actor.where.remote()) == here()


@pytest.mark.parametrize("selector", ["b", "!a", "in(b,c)", "!in(a,c)"])
def test_selectors_that_do_not_match(selector: str) -> None:
    with pytest.raises(ray.exceptions.TaskUnschedulableError, match="`zone` is `a`"):
        ray.get(where.options(label_selector={"zone": selector}).remote())
    actor = Somewhere.options(label_selector={"zone": selector}).remote()
    with pytest.raises(ray.exceptions.ActorUnschedulableError, match="no machine has such labels"):
        ray.get(actor.where.remote())


def test_a_fallback_is_taken_where_the_first_choice_is_nowhere() -> None:
    fallback = [{"label_selector": {"zone": "c"}}, {"label_selector": {"zone": "a"}}]
    task = where.options(label_selector={"zone": "b"}, fallback_strategy=fallback)
    assert ray.get(task.remote()) == here()
    with pytest.raises(ray.exceptions.TaskUnschedulableError):
        ray.get(where.options(label_selector={"zone": "b"}, fallback_strategy=fallback[:1]).remote())


def test_one_refused_class_leaves_others_alone() -> None:
    refused = where.options(label_selector={"zone": "b"})
    tasks = [(refused if number % 2 else where).remote() for number in range(20)]
    for number, task in enumerate(tasks):
        if number % 2:
            with pytest.raises(ray.exceptions.TaskUnschedulableError):
                ray.get(task)
        else:
            assert ray.get(task) == here()
