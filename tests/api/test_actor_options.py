"""Every row of the table of actor options, and what an actor holds while it lives."""

from __future__ import annotations

from typing import Any

import oxiray
import pytest
from oxiray._options import actor_options, check_submittable
from oxiray._option_rules import check_method


class Plain:
    def read(self) -> int:
        return 1


REFUSED = [
    ({"color": 1}, ValueError, "Invalid option keyword color for actors"),
    ({"max_calls": 1}, ValueError, "Invalid option keyword max_calls"),
    ({"max_retries": 1}, ValueError, "Invalid option keyword max_retries"),
    ({"num_returns": 1}, ValueError, "Invalid option keyword num_returns"),
    ({"retry_exceptions": True}, ValueError, "Invalid option keyword retry_exceptions"),
    ({"num_cpus": "1"}, TypeError, "num_cpus"),
    ({"num_gpus": -1}, ValueError, "num_gpus cannot be negative"),
    ({"resources": {"GPU": 1}}, ValueError, "num_gpus=1"),
    ({"resources": {"TPU": 3}}, ValueError, "TPU"),
    ({"max_restarts": -2}, ValueError, "max_restarts"),
    ({"max_restarts": 1.5}, TypeError, "max_restarts"),
    ({"max_task_retries": -2}, ValueError, "max_task_retries"),
    ({"max_concurrency": -1}, ValueError, "max_concurrency"),
    ({"max_concurrency": "1"}, TypeError, "max_concurrency"),
    ({"max_pending_calls": -2}, ValueError, "max_pending_calls"),
    ({"max_pending_calls": "a"}, TypeError, "max_pending_calls"),
    ({"name": 1}, TypeError, "name"),
    ({"namespace": 1}, TypeError, "namespace"),
    ({"lifetime": "for ever"}, ValueError, "'detached', 'non_detached'"),
    ({"lifetime": 1}, TypeError, "lifetime"),
    ({"get_if_exists": True}, ValueError, "name must be specified"),
    ({"get_if_exists": 1, "name": "a"}, TypeError, "get_if_exists"),
    ({"allow_out_of_order_execution": 1}, TypeError, "allow_out_of_order_execution"),
    ({"object_store_memory": -1}, ValueError, "object_store_memory"),
    ({"concurrency_groups": 1}, TypeError, "concurrency_groups"),
    ({"concurrency_groups": {"io": -1}}, ValueError, "concurrency_groups"),
    ({"concurrency_groups": {"io": "x"}}, TypeError, "concurrency_groups"),
    ({"concurrency_groups": [{"name": "io"}]}, ValueError, "max_concurrency"),
    ({"_actor_generator_backpressure_num_objects": 0}, ValueError, "_actor_generator_backpressure_num_objects"),
    ({"runtime_env": {"env_vars": {1: "a"}}}, TypeError, "env_vars"),
]


@pytest.mark.parametrize(("given", "kind", "part"), REFUSED, ids=[str(row[0]) for row in REFUSED])
def test_refused_in_decorator_and_in_options(given: dict[str, Any], kind: type[Exception], part: str) -> None:
    for ask in (lambda: oxiray.remote(**given)(Plain), lambda: oxiray.remote(Plain).options(**given)):
        with pytest.raises(kind) as caught:
            ask()
        assert part in str(caught.value)


def test_concurrency_groups_belong_to_the_decorator() -> None:
    oxiray.remote(concurrency_groups={"io": 2})(Plain)
    with pytest.raises(ValueError, match="not supported in '.options"):
        oxiray.remote(Plain).options(concurrency_groups={"io": 2})


@pytest.mark.parametrize(
    ("given", "is_async", "part"),
    [
        ({"name": ""}, False, "Actor name cannot be an empty string"),
        ({"namespace": ""}, False, "not a valid namespace"),
        ({"allow_out_of_order_execution": False, "max_concurrency": 2}, False, "max_concurrency=2"),
        ({"allow_out_of_order_execution": False}, True, "asyncio"),
        ({"scheduling_strategy": "FOO"}, False, "FOO"),
        ({"num_gpus": 1.5}, False, "1.5"),
        ({"resources": {"memory": 1}}, False, "memory"),
        ({"resources": {"bundle": 1}}, False, "reserved"),
        ({"placement_group": None, "placement_group_bundle_index": 1}, False, "placement_group_bundle_index"),
    ],
    ids=str,
)
def test_refused_at_creation(given: dict[str, Any], is_async: bool, part: str) -> None:
    options = actor_options(given)
    with pytest.raises(ValueError) as caught:
        check_submittable(options, is_async=is_async)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"max_concurrency": 0},
        {"max_restarts": -1, "max_task_retries": -1},
        {"max_restarts": None},
        {"lifetime": "detached", "name": "a", "namespace": "b"},
        {"lifetime": "non_detached"},
        {"get_if_exists": True, "name": "a"},
        {"max_pending_calls": 0},
        {"allow_out_of_order_execution": True, "max_concurrency": 2},
        {"allow_out_of_order_execution": False},
        {"enable_tensor_transport": True},
        {"num_gpus": 0.25, "accelerator_type": "A100"},
    ],
    ids=str,
)
def test_accepted(given: dict[str, Any]) -> None:
    oxiray.remote(**given)(Plain)
    oxiray.remote(Plain).options(**given)
    check_submittable(actor_options(given))


# What a machine must have free to take the actor, and what the actor then holds.
DEMANDS = [
    ({}, {"CPU": 1}, {}),
    ({"num_cpus": None}, {"CPU": 1}, {}),
    ({"resources": {}}, {"CPU": 1}, {}),
    ({"memory": 100.7}, {"CPU": 1, "memory": 100}, {"memory": 100}),
    ({"num_cpus": 0}, {}, {}),
    ({"num_cpus": 2}, {"CPU": 2}, {"CPU": 2}),
    ({"num_gpus": 1}, {"CPU": 1, "GPU": 1}, {"CPU": 1, "GPU": 1}),
    ({"num_gpus": 0}, {"CPU": 1}, {"CPU": 1}),
    ({"resources": {"slot": 0}}, {"CPU": 1}, {"CPU": 1}),
    ({"resources": {"slot": 0.5}}, {"CPU": 1, "slot": 0.5}, {"CPU": 1, "slot": 0.5}),
    ({"num_cpus": 0, "num_gpus": 1}, {"GPU": 1}, {"GPU": 1}),
    (
        {"accelerator_type": "H100"},
        {"CPU": 1, "accelerator_type:H100": 0.001},
        {"CPU": 1, "accelerator_type:H100": 0.001},
    ),
]


@pytest.mark.parametrize(("given", "placement", "running"), DEMANDS, ids=[str(row[0]) for row in DEMANDS])
def test_demand(given: dict[str, Any], placement: dict[str, float], running: dict[str, float]) -> None:
    options = actor_options(given)
    assert (options.placement, options.running) == (placement, running)


def test_defaults() -> None:
    options = actor_options({})
    assert (options.max_restarts, options.max_task_retries, options.max_pending_calls) == (0, 0, -1)
    assert (options.name, options.namespace, options.lifetime, options.get_if_exists) == (None, None, None, False)
    assert options.concurrency(is_async=False) == 1
    assert options.concurrency(is_async=True) == 1000


def test_options_replace_what_the_decorator_said() -> None:
    base = actor_options({"num_gpus": 1, "name": "a", "concurrency_groups": [{"name": "io", "max_concurrency": 2}]})
    merged = actor_options({"num_gpus": 0.5, "get_if_exists": True}, in_options=True, base=base)
    assert merged.running == {"CPU": 1.0, "GPU": 0.5}
    assert (merged.name, merged.get_if_exists, merged.concurrency_groups) == ("a", True, {"io": 2})


def test_an_actors_share_of_the_store_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match="object_store_memory"):
        actor_options({"object_store_memory": 1})


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"color": 1}, AssertionError),
        ({"num_returns": -1}, ValueError),
        ({"num_returns": 10**9}, ValueError),
        ({"num_returns": 1.5}, TypeError),
        ({"max_task_retries": -2}, ValueError),
        ({"retry_exceptions": [1]}, ValueError),
        ({"concurrency_group": 1}, TypeError),
    ],
    ids=str,
)
def test_what_a_methods_decorator_refuses(given: dict[str, Any], kind: type[BaseException]) -> None:
    with pytest.raises(kind):
        check_method(given)
    check_method({"num_returns": 2, "concurrency_group": "io", "max_task_retries": -1, "retry_exceptions": [OSError]})
