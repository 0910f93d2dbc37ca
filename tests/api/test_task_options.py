"""Every row of the table of task options: what is refused, with which error, and what becomes of the rest."""

from __future__ import annotations

import math
import warnings
from typing import Any

import oxiray
import pytest
from named import named
from oxiray._options import TaskOptions, check_submittable, task_options
from oxiray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy


def function() -> None: ...


def generator() -> Any:
    yield 1


# What `@remote(...)` and `.options(...)` both refuse, the error, and a part of what it says.
REFUSED = [
    ({"color": 1}, ValueError, "Invalid option keyword color for remote functions"),
    ({"max_concurrency": 1}, ValueError, "Invalid option keyword max_concurrency"),
    ({"num_cpus": "1"}, TypeError, "The type of keyword 'num_cpus' must be"),
    ({"num_cpus": -1}, ValueError, "num_cpus cannot be negative"),
    ({"num_cpus": 1e-5}, ValueError, "cannot go beyond 0.0001"),
    ({"num_cpus": math.nan}, ValueError, "num_cpus must be a finite number"),
    ({"num_cpus": math.inf}, OverflowError, "num_cpus must be a finite number"),
    ({"num_cpus": 10**400}, OverflowError, "num_cpus must be a finite number"),
    ({"num_gpus": math.nan}, ValueError, "num_gpus must be a finite number"),
    ({"memory": math.inf}, OverflowError, "memory must be a finite number"),
    ({"resources": {"slot": math.nan}}, ValueError, "slot must be a finite number"),
    ({"resources": {"TPU": math.inf}}, OverflowError, "TPU must be a finite number"),
    ({"num_returns": 10**9}, ValueError, "at most 100000 results"),
    ({"device_isolation": "fenced"}, ValueError, "device_isolation must be one of 'variable', 'watch', 'fence', 'require'"),
    ({"device_isolation": 1}, TypeError, "The type of keyword 'device_isolation' must be"),
    ({"runtime_env": {"device_isolation": "no"}}, ValueError, "runtime_env['device_isolation'] must be one of"),
    (
        {"runtime_env": {"device_isolation": "fence"}, "device_isolation": "require"},
        ValueError,
        "runtime_env['device_isolation'] is 'fence'",
    ),
    ({"num_gpus": "1"}, TypeError, "The type of keyword 'num_gpus' must be"),
    ({"num_gpus": -0.5}, ValueError, "num_gpus cannot be negative"),
    ({"num_gpus": 0.00001}, ValueError, "num_gpus cannot go beyond 0.0001"),
    ({"resources": [1]}, TypeError, "The type of keyword 'resources' must be"),
    ({"resources": {"CPU": 1}}, ValueError, "num_cpus=1"),
    ({"resources": {"GPU": 2}}, ValueError, "num_gpus=2"),
    ({"resources": {"slot": -1}}, ValueError, "slot cannot be negative"),
    ({"resources": {"slot": 1e-5}}, ValueError, "slot cannot go beyond 0.0001"),
    ({"resources": {"slot": "1"}}, TypeError, "must be a number"),
    ({"resources": {"slot": None}}, TypeError, "must be a number"),
    ({"resources": {"neuron_cores": 0.5}}, ValueError, "neuron_cores"),
    ({"resources": {"HPU": 1.5}}, ValueError, "HPU"),
    ({"resources": {"TPU": 3}}, ValueError, "TPU"),
    ({"resources": {"TPU": 0}}, ValueError, "TPU"),
    ({"resources": {"TPU": 0.5}}, ValueError, "TPU"),
    ({"accelerator_type": 5}, TypeError, "accelerator_type"),
    ({"memory": -1}, ValueError, "memory cannot be negative"),
    ({"memory": "1"}, TypeError, "memory"),
    ({"object_store_memory": 1}, ValueError, "not implemented for tasks"),
    ({"num_returns": -1}, ValueError, "non-negative integer"),
    ({"num_returns": 1.5}, TypeError, "num_returns"),
    ({"num_returns": "many"}, ValueError, "num_returns"),
    ({"num_returns": "streaming"}, ValueError, "only be used with generator functions"),
    ({"num_returns": "dynamic"}, ValueError, "only be used with generator functions"),
    ({"max_calls": -1}, ValueError, "max_calls"),
    ({"max_calls": 0.5}, TypeError, "max_calls"),
    ({"max_retries": -2}, ValueError, "-1 or a positive integer, where -1 represents infinity"),
    ({"max_retries": "3"}, TypeError, "max_retries"),
    ({"retry_exceptions": 1}, TypeError, "retry_exceptions"),
    ({"retry_exceptions": None}, TypeError, "retry_exceptions"),
    ({"retry_exceptions": [1]}, ValueError, "either a boolean or a list of exceptions"),
    ({"retry_exceptions": [int]}, ValueError, "either a boolean or a list of exceptions"),
    ({"scheduling_strategy": 1}, TypeError, "scheduling_strategy"),
    ({"runtime_env": 1}, TypeError, "runtime_env"),
    ({"runtime_env": {"env_vars": {"A": 1}}}, TypeError, "env_vars"),
    ({"runtime_env": {"env_vars": {1: "A"}}}, TypeError, "env_vars"),
    ({"runtime_env": {"env_vars": 1}}, TypeError, "env_vars"),
    ({"runtime_env": {"pip": ["a"], "conda": "b"}}, ValueError, "'pip' and 'conda'"),
    ({"name": 1}, TypeError, "name"),
    ({"label_selector": 1}, TypeError, "label_selector"),
    ({"label_selector": {"zone": 1}}, TypeError, "zone"),
    ({"label_selector": {"zone": "in(a"}}, ValueError, "in(a"),
    ({"label_selector": {"-zone": "a"}}, ValueError, "-zone"),
    ({"fallback_strategy": [{}]}, ValueError, "empty dictionary"),
    ({"fallback_strategy": [1]}, ValueError, "must be a dictionary"),
    ({"fallback_strategy": [{"place": {"a": "b"}}]}, ValueError, "place"),
    ({"placement_group": 1}, TypeError, "placement_group"),
    ({"placement_group": "x", "scheduling_strategy": "SPREAD"}, ValueError, "scheduling_strategy option"),
    ({"placement_group_capture_child_tasks": 1}, TypeError, "placement_group_capture_child_tasks"),
    ({"enable_task_events": 1}, TypeError, "enable_task_events"),
    ({"_generator_backpressure_num_objects": 0}, ValueError, "_generator_backpressure_num_objects=0"),
    ({"_num_objects_per_yield": 0}, ValueError, "_num_objects_per_yield"),
]


@pytest.mark.parametrize(("given", "kind", "part"), REFUSED, ids=[named(row[0]) for row in REFUSED])
def test_refused_in_decorator_and_in_options(given: dict[str, Any], kind: type[Exception], part: str) -> None:
    for ask in (lambda: oxiray.remote(**given)(function), lambda: oxiray.remote(function).options(**given)):
        with pytest.raises(kind) as caught:
            ask()
        assert part in str(caught.value)


@pytest.mark.parametrize("given", [{"max_calls": 1}, {"max_calls": 0}, {"_num_objects_per_yield": 2}])
def test_refused_in_options_only(given: dict[str, Any]) -> None:
    oxiray.remote(**given)(function)
    with pytest.raises(ValueError, match=next(iter(given))):
        oxiray.remote(function).options(**given)


# What is accepted until `.remote()`.
REFUSED_AT_SUBMISSION = [
    ({"num_gpus": 1.5}, "1.5"),
    ({"resources": {"NPU": 1.5}}, "1.5"),
    ({"resources": {"memory": 1}}, "memory"),
    ({"resources": {"object_store_memory": 1}}, "object_store_memory"),
    ({"resources": {"bundle": 1}}, "reserved"),
    ({"scheduling_strategy": "FOO"}, "Invalid scheduling_strategy value FOO"),
    ({"placement_group": None, "placement_group_bundle_index": 0}, "placement_group_bundle_index is 0"),
    ({"scheduling_strategy": PlacementGroupSchedulingStrategy("x")}, "no placement group"),
]


@pytest.mark.parametrize(("given", "part"), REFUSED_AT_SUBMISSION, ids=[named(row[0]) for row in REFUSED_AT_SUBMISSION])
def test_refused_at_submission(given: dict[str, Any], part: str) -> None:
    options = task_options(given)
    with pytest.raises(ValueError) as caught:
        check_submittable(options)
    assert part in str(caught.value)


ACCEPTED = [
    {"num_cpus": True},
    {"num_cpus": 1.5},
    {"num_gpus": 0.0001},
    {"num_gpus": 2.0},
    {"resources": {"slot": 2.5}},
    {"resources": {"neuron_cores": 0}},
    {"resources": {"NPU": 0.5}},
    {"resources": {"TPU": 8}},
    {"num_gpus": 1, "resources": {"neuron_cores": 2}},
    {"memory": 1.5},
    {"num_returns": 0},
    {"max_retries": -1},
    {"retry_exceptions": (ValueError, KeyError)},
    {"retry_exceptions": True},
    {"scheduling_strategy": "SPREAD"},
    {"scheduling_strategy": NodeAffinitySchedulingStrategy("ab" * 28, soft=False)},
    {"runtime_env": {"some_plugin": 1}},
    {"name": ""},
    {"label_selector": {"ray.io/zone": "!in(a,b)", "x": "!a", "y": "b"}},
    {"fallback_strategy": [{"label_selector": {"a": "b"}}]},
    {"placement_group": "default", "scheduling_strategy": "SPREAD"},
    {"placement_group_capture_child_tasks": True},
    {"enable_task_events": False},
    {"_labels": {"a": "b"}},
    {"_generator_backpressure_num_objects": -1},
]


@pytest.mark.parametrize("given", ACCEPTED, ids=named)
def test_accepted(given: dict[str, Any]) -> None:
    oxiray.remote(**given)(function)
    oxiray.remote(function).options(**given)
    check_submittable(task_options(given))


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_TASK_MAX_RETRIES", raising=False)
    options = task_options({})
    assert (options.num_returns, options.max_calls, options.max_retries) == (1, 0, 3)
    assert options.retry_exceptions is False
    assert options.resources == {"CPU": 1.0}
    assert (options.runtime_env, options.scheduling_strategy, options.name) == (None, None, None)
    assert (options.generator_backpressure_num_objects, options.num_objects_per_yield) == (-1, 1)
    assert options.enable_task_events is True


@pytest.mark.parametrize(
    ("given", "demand"),
    [
        ({}, {"CPU": 1}),
        ({"num_cpus": None}, {}),
        ({"num_cpus": 0}, {}),
        ({"num_cpus": 0.5, "num_gpus": 2}, {"CPU": 0.5, "GPU": 2}),
        ({"num_gpus": 0}, {"CPU": 1}),
        ({"memory": 100.7}, {"CPU": 1, "memory": 100}),
        ({"resources": {"slot": 0}}, {"CPU": 1}),
        ({"resources": {"slot": 0.5}}, {"CPU": 1, "slot": 0.5}),
        ({"accelerator_type": "H100"}, {"CPU": 1, "accelerator_type:H100": 0.001}),
    ],
    ids=named,
)
def test_demand(given: dict[str, Any], demand: dict[str, float]) -> None:
    assert task_options(given).resources == demand


@pytest.mark.parametrize(
    ("decorator", "options", "max_calls"),
    [
        ({}, {}, 0),
        ({"num_gpus": 1}, {}, 1),
        ({"num_gpus": 0.25}, {}, 1),
        ({}, {"num_gpus": 1}, 1),
        ({"num_gpus": 1}, {"num_gpus": 0}, 0),
        ({"num_gpus": 1, "max_calls": 0}, {}, 0),
        ({"num_gpus": 1, "max_calls": 3}, {}, 3),
        ({"max_calls": 0}, {"num_gpus": 1}, 0),
        ({"resources": {"TPU": 4}}, {}, 1),
        ({}, {"resources": {"NPU": 0.5}}, 1),
        ({"resources": {"HPU": 1}}, {}, 1),
        ({"resources": {"neuron_cores": 2}}, {}, 1),
        ({"resources": {"neuron_cores": 0}}, {}, 0),
        ({"resources": {"slot": 1}}, {}, 0),
        ({"accelerator_type": "H100"}, {}, 0),
    ],
    ids=named,
)
def test_a_task_with_an_accelerator_gets_a_fresh_process(
    decorator: dict[str, Any], options: dict[str, Any], max_calls: int
) -> None:
    merged = task_options(options, in_options=True, base=task_options(decorator))
    assert merged.max_calls == max_calls


def test_options_replace_what_the_decorator_said() -> None:
    base = task_options({"num_cpus": 2, "name": "a", "runtime_env": {"env_vars": {"A": "1"}}})
    merged = task_options({"name": "b"}, in_options=True, base=base)
    assert (merged.name, merged.resources, merged.runtime_env) == ("b", {"CPU": 2.0}, {"env_vars": {"A": "1"}})
    assert base.name == "a"


def test_a_generator_streams_unless_told_otherwise() -> None:
    base = task_options({}, is_generator=True)
    assert base.num_returns == "streaming"
    assert task_options({"num_returns": 2}, in_options=True, base=base).num_returns == 2
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert task_options({"num_returns": "dynamic"}, is_generator=True).num_returns == "dynamic"
    assert [warning.category for warning in seen] == [DeprecationWarning]
    oxiray.remote(num_returns="streaming")(generator)


@pytest.mark.parametrize(("text", "expected"), [("7", 7), ("-1", -1), ("0", 0), ("", 3)])
def test_default_retries_from_the_environment(monkeypatch: pytest.MonkeyPatch, text: str, expected: int) -> None:
    monkeypatch.setenv("RAY_TASK_MAX_RETRIES", text)
    assert task_options({}).max_retries == expected
    assert task_options({"max_retries": 5}).max_retries == 5


@pytest.mark.parametrize("text", ["many", "-2", "1.5"])
def test_wrong_default_retries_in_the_environment(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("RAY_TASK_MAX_RETRIES", text)
    with pytest.raises(ValueError, match="RAY_TASK_MAX_RETRIES"):
        task_options({})


def test_the_old_way_to_name_a_placement_group_warns() -> None:
    with pytest.warns(DeprecationWarning, match="PlacementGroupSchedulingStrategy"):
        options = task_options({"placement_group": "x"})
    with pytest.raises(ValueError, match="no placement group"):
        check_submittable(options)


def test_options_are_frozen() -> None:
    options: Any = task_options({})
    assert isinstance(options, TaskOptions)
    with pytest.raises(AttributeError):
        options.max_calls = 5


@pytest.mark.parametrize("arguments", [((), {}), ((1,), {}), ((function,), {"num_cpus": 1})], ids=named)
def test_wrong_forms_of_the_decorator(arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    positional, keywords = arguments
    with pytest.raises((AssertionError, TypeError)):
        oxiray.remote(*positional, **keywords)


def test_a_remote_function_is_not_called_directly() -> None:
    with pytest.raises(TypeError, match="cannot be called directly"):
        oxiray.remote(function)()


def test_an_async_function_is_no_task() -> None:
    async def asynchronous() -> None: ...

    with pytest.raises(ValueError, match="async def"):
        oxiray.remote(asynchronous)


def test_what_is_remote_already_is_not_made_so_again() -> None:
    class Plain: ...

    for target in (function, Plain):
        with pytest.raises(TypeError, match="already"):
            oxiray.remote(oxiray.remote(target))


@pytest.mark.usefixtures("two_cpus")
def test_an_argument_may_be_called_self() -> None:
    @oxiray.remote
    def double(self: int) -> int:
        return 2 * self

    assert oxiray.get(double.remote(self=7), timeout=60) == 14


def test_code_that_captures_much_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    from oxiray import remote_function

    for size, told in ((9 << 20, 0), (11 << 20, 1)):
        captured = bytes(size)
        remote_function.code_of(lambda captured=captured: captured)
        assert len({record.created for record in caplog.records if "is very large (11 MiB)" in record.getMessage()}) == told
