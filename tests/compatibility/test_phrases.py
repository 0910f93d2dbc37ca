"""Phrases of errors that programs match: what is wrong with arguments, by area."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import ray
from ray.runtime_env import RuntimeEnv, RuntimeEnvConfig
from ray.util import ActorPool, as_completed, map_unordered, metrics
from ray.util.multiprocessing import Pool
from ray.util.placement_group import get_placement_group, placement_group
from ray.util.queue import Empty, Full, Queue
from ray.util.scheduling_strategies import (
    Exists,
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
    PlacementGroupSchedulingStrategy,
)

pytestmark = pytest.mark.usefixtures("session")
Raises = Callable[[], Any]
Case = tuple[str, Raises, "type[BaseException] | tuple[type[BaseException], ...]", str]


@ray.remote
def function(one: Any = None) -> Any:
    return one


@ray.remote
class Actor:
    def method(self) -> int:
        return 1


def _inherit() -> None:
    class Derived(Actor):
        pass


def _await() -> None:
    @ray.remote
    async def awaits() -> None: ...


def _full() -> None:
    queue = Queue(maxsize=1)
    try:
        queue.put_nowait_batch([1, 2])
    finally:
        queue.shutdown()


def _empty() -> None:
    queue = Queue()
    try:
        queue.get_nowait_batch(2)
    finally:
        queue.shutdown()


def _queue(use: Callable[[Queue], Any]) -> Raises:
    def run() -> None:
        queue = Queue()
        try:
            use(queue)
        finally:
            queue.shutdown()

    return run


def _twice() -> None:
    actor = Actor.remote()
    ActorPool([actor]).push(actor)


def _counter(tags: dict[str, Any] | None = None, value: Any = 1) -> Raises:
    return lambda: metrics.Counter("phrases_counter", tag_keys=("kind",)).inc(value, tags=tags)


def named(cases: list[Case]) -> Any:
    return pytest.mark.parametrize(("raises", "kind", "phrase"), [case[1:] for case in cases], ids=[case[0] for case in cases])


def check(raises: Raises, kind: Any, phrase: str) -> None:
    with pytest.raises(kind) as caught:
        raises()
    assert phrase in str(caught.value)


@named(
    [
        ("function", lambda: function(), TypeError, "Remote functions cannot be called directly"),
        ("method", lambda: Actor.remote().method(), TypeError, "Actor methods cannot be called directly"),
        ("class", lambda: Actor(), TypeError, "cannot be instantiated directly"),
        ("async", _await, ValueError, "'async def' should not be used for remote tasks"),
        ("inherit", _inherit, Exception, "Inheriting from actor classes is not currently supported"),
        (
            "decorator",
            lambda: ray.remote(functools.partial(max, 1)),
            TypeError,
            "decorator must be applied to either a function or a class",
        ),
        (
            "positional",
            lambda: ray.remote(1, 2),
            AssertionError,
            "The @ray.remote decorator must be applied either with no arguments",
        ),
        ("no method", lambda: Actor.remote().other, AttributeError, "object has no attribute 'other'"),
        ("exit", lambda: ray.actor.exit_actor(), TypeError, "exit_actor API is called on a non-actor worker"),
        (
            "current actor",
            lambda: ray.get_runtime_context().current_actor,
            RuntimeError,
            "This method is only available in an actor",
        ),
        ("put", lambda: ray.put(ray.put(1)), TypeError, "Calling 'put' on an ray.ObjectRef is not allowed"),
        ("get", lambda: ray.get(1), ValueError, "'object_refs' must either be an ObjectRef or a list of ObjectRefs."),
        (
            "get in list",
            lambda: ray.get([1]),
            TypeError,
            "Attempting to call `get` on the value 1, which is not an ray.ObjectRef.",
        ),
        (
            "wait one",
            lambda: ray.wait(ray.put(1)),
            TypeError,
            "wait() expected a list of ray.ObjectRef or ray.ObjectRefGenerator",
        ),
        ("wait what", lambda: ray.wait([1]), TypeError, "got list containing <class 'int'>"),
        ("wait none", lambda: ray.wait([ray.put(1)], num_returns=0), ValueError, "Invalid number of objects to return 0."),
        (
            "wait many",
            lambda: ray.wait([ray.put(1)], num_returns=2),
            ValueError,
            "num_returns cannot be greater than the number",
        ),
        (
            "wait when",
            lambda: ray.wait([ray.put(1)], timeout=-1),
            ValueError,
            "The 'timeout' argument must be nonnegative. Received -1",
        ),
        ("kill", lambda: ray.kill(1), ValueError, "ray.kill() only supported for actors. For tasks, try ray.cancel()."),
        ("cancel", lambda: ray.cancel(1), TypeError, "ray.cancel() only supported for object refs."),
        ("init", lambda: ray.init(), RuntimeError, "Maybe you called ray.init twice by accident?"),
        ("owner", lambda: ray.put(1, _owner=1), (ValueError, TypeError), "_owner"),
        ("actor", lambda: ray.get_actor(""), ValueError, "Please supply a non-empty value to get_actor"),
    ]
)
def test_an_error_of_a_call_has_this_phrase(raises: Raises, kind: Any, phrase: str) -> None:
    check(raises, kind, phrase)


def test_wait_for_one_reference_twice_has_the_phrase() -> None:
    reference = ray.put(1)
    with pytest.raises(ValueError, match="Wait requires a list of unique ray_waitables."):
        ray.wait([reference, reference])


@named(
    [
        (
            "function",
            lambda: function.options(other=1),
            ValueError,
            "Invalid option keyword other for remote functions. Valid ones are",
        ),
        ("actor", lambda: Actor.options(other=1), ValueError, "Invalid option keyword other for actors. Valid ones are"),
        (
            "exists",
            lambda: Actor.options(get_if_exists=True).remote(),
            ValueError,
            "The actor name must be specified to use `get_if_exists`.",
        ),
        (
            "name",
            lambda: Actor.options(name=5).remote(),
            TypeError,
            "The type of keyword 'name' must be (<class 'str'>, <class 'NoneType'>), but received type <class 'int'>",
        ),
        ("empty name", lambda: Actor.options(name="").remote(), ValueError, "Actor name cannot be an empty string."),
        ("namespace", lambda: Actor.options(name="x", namespace="").remote(), ValueError, '"" is not a valid namespace.'),
        ("lifetime", lambda: Actor.options(lifetime="short"), ValueError, "lifetime"),
        ("retries", lambda: function.options(retry_exceptions=5), TypeError, "retry_exceptions"),
        (
            "streaming",
            lambda: function.options(num_returns="streaming"),
            ValueError,
            "can only be used with generator functions",
        ),
        ("cpus", lambda: function.options(num_cpus="1"), TypeError, "The type of keyword 'num_cpus' must be"),
        ("negative", lambda: function.options(num_gpus=-1), ValueError, "The quantity of resource num_gpus cannot be negative"),
        (
            "resources",
            lambda: function.options(resources={"CPU": 1}),
            ValueError,
            "Use the 'num_cpus' and 'num_gpus' keyword instead of 'CPU' and 'GPU' in 'resources' keyword",
        ),
        (
            "strategy",
            lambda: function.options(scheduling_strategy="FAST").remote(),
            ValueError,
            "Invalid scheduling_strategy value FAST. Valid values are [",
        ),
        (
            "max_calls",
            lambda: function.options(max_calls=1),
            ValueError,
            "Setting 'max_calls' is not supported in '.options()'.",
        ),
        (
            "groups",
            lambda: Actor.options(concurrency_groups={"io": 1}),
            ValueError,
            "Setting 'concurrency_groups' is not supported in '.options()'.",
        ),
        ("method", lambda: ray.method(other=1), AssertionError, "Unexpected keyword argument to @ray.method"),
    ]
)
def test_an_error_of_an_option_has_this_phrase(raises: Raises, kind: Any, phrase: str) -> None:
    check(raises, kind, phrase)


@named(
    [
        ("no list", lambda: placement_group({"CPU": 1}), ValueError, "Placement group bundles must be a list, got"),
        ("no bundles", lambda: placement_group([]), ValueError, "Bundles must be a non-empty list of resource dictionaries."),
        (
            "no dictionary",
            lambda: placement_group(["CPU"]),
            ValueError,
            "Bundles must be a non-empty list of resource dictionaries.",
        ),
        (
            "empty",
            lambda: placement_group([{}]),
            ValueError,
            "Bundles cannot be an empty dictionary or resources with only 0 values.",
        ),
        (
            "zero",
            lambda: placement_group([{"CPU": 0}]),
            ValueError,
            "Bundles cannot be an empty dictionary or resources with only 0 values.",
        ),
        (
            "strategy",
            lambda: placement_group([{"CPU": 1}], strategy="NEAR"),
            ValueError,
            "Invalid placement group strategy NEAR",
        ),
        (
            "lifetime",
            lambda: placement_group([{"CPU": 1}], lifetime="short"),
            ValueError,
            "Placement group `lifetime` argument must be either `None` or 'detached'.",
        ),
        ("name", lambda: get_placement_group(""), ValueError, "Please supply a non-empty value to get_placement_group"),
        ("unknown", lambda: get_placement_group("nobody"), ValueError, "Failed to look up placement group with name: nobody"),
        (
            "selectors",
            lambda: placement_group([{"CPU": 1}], bundle_label_selector="a"),
            ValueError,
            "Placement group bundle_label_selector must be a list, got",
        ),
        (
            "count",
            lambda: placement_group([{"CPU": 1}], bundle_label_selector=[{}, {}]),
            ValueError,
            "The length of `bundle_label_selector` should equal the length of `bundles`.",
        ),
        ("in", lambda: In(), ValueError, "The variadic parameter of the In operator must be a non-empty tuple"),
        ("not in", lambda: NotIn(5), ValueError, "Type of value in position 0 for the NotIn operator must be str"),
        ("hard", lambda: NodeLabelSchedulingStrategy(hard="a"), ValueError, "parameter must be a map"),
        (
            "key",
            lambda: NodeLabelSchedulingStrategy(hard={5: Exists()}),
            ValueError,
            "The map key of the hard parameter must be of type str",
        ),
        (
            "value",
            lambda: NodeLabelSchedulingStrategy(hard={"a": 5}),
            ValueError,
            "The map value for key a of the hard parameter must be one of the `In`, `NotIn`, `Exists` or `DoesNotExist` operator",
        ),
        (
            "spill",
            lambda: NodeAffinitySchedulingStrategy("ab" * 28, soft=False, _spill_on_unavailable=True),
            ValueError,
            "_spill_on_unavailable cannot be set when soft is False.",
        ),
        (
            "fail",
            lambda: NodeAffinitySchedulingStrategy("ab" * 28, soft=True, _fail_on_unavailable=True),
            ValueError,
            "_fail_on_unavailable cannot be set when soft is True.",
        ),
    ]
)
def test_an_error_of_placement_has_this_phrase(raises: Raises, kind: Any, phrase: str) -> None:
    check(raises, kind, phrase)


def test_a_bundle_index_beyond_the_group_has_the_phrase() -> None:
    group = placement_group([{"CPU": 1}])
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=4)
    with pytest.raises(ValueError, match="placement group bundle index 4 is invalid. Valid placement group indexes: 0-1"):
        function.options(scheduling_strategy=strategy).remote()
    ray.util.remove_placement_group(group)


@named(
    [
        ("variables", lambda: RuntimeEnv(env_vars="a"), TypeError, "runtime_env['env_vars'] must be of type Dict[str, str]"),
        ("number", lambda: RuntimeEnv(env_vars={"A": 1}), TypeError, "runtime_env['env_vars'] must be of type Dict[str, str]"),
        ("excludes", lambda: RuntimeEnv(excludes=[5]), TypeError, "runtime_env['excludes'] must be of type List[str]"),
        ("pip", lambda: RuntimeEnv(pip=5), TypeError, "runtime_env['pip'] must be of type"),
        ("pip key", lambda: RuntimeEnv(pip={"other": 1}), ValueError, "runtime_env['pip'] can only have these fields"),
        (
            "pip packages",
            lambda: RuntimeEnv(pip={"pip_check": True}),
            ValueError,
            "runtime_env['pip'] must include field 'packages'",
        ),
        (
            "pip check",
            lambda: RuntimeEnv(pip={"packages": ["a"], "pip_check": "1"}),
            TypeError,
            "runtime_env['pip']['pip_check'] must be of type bool",
        ),
        (
            "pip version",
            lambda: RuntimeEnv(pip={"packages": ["a"], "pip_version": 1}),
            TypeError,
            "runtime_env['pip']['pip_version'] must be of type str",
        ),
        ("uv", lambda: RuntimeEnv(uv=5), TypeError, "runtime_env['uv'] must be of type"),
        ("uv key", lambda: RuntimeEnv(uv={"other": 1}), ValueError, "runtime_env['uv'] can only have these fields"),
        ("conda", lambda: RuntimeEnv(conda=5), TypeError, "runtime_env['conda'] must be of type"),
        ("conda file", lambda: RuntimeEnv(conda="missing.yml"), ValueError, "Can't find conda YAML file"),
        (
            "both",
            lambda: RuntimeEnv(pip=["a"], conda="b"),
            ValueError,
            "The 'pip' field, 'uv' field, and 'conda' field of runtime_env cannot be specified at the same time.",
        ),
        (
            "timeout",
            lambda: RuntimeEnvConfig(setup_timeout_seconds="1"),
            TypeError,
            "setup_timeout_seconds must be of type int, got:",
        ),
        (
            "negative",
            lambda: RuntimeEnvConfig(setup_timeout_seconds=-5),
            ValueError,
            "setup_timeout_seconds must be greater than zero or equals to -1, got:",
        ),
        ("eager", lambda: RuntimeEnvConfig(eager_install="yes"), TypeError, "eager_install must be a boolean. got"),
        (
            "config",
            lambda: RuntimeEnv(config=5),
            TypeError,
            "runtime_env['config'] must be of type dict or RuntimeEnvConfig, got:",
        ),
        ("kind", lambda: function.options(runtime_env=5), TypeError, "The type of keyword 'runtime_env' must be"),
    ]
)
def test_an_error_of_an_environment_has_this_phrase(raises: Raises, kind: Any, phrase: str) -> None:
    check(raises, kind, phrase)


@named(
    [
        ("next", lambda: ActorPool([]).get_next(), StopIteration, "No more results to get"),
        ("unordered", lambda: ActorPool([]).get_next_unordered(), StopIteration, "No more results to get"),
        ("push", _twice, ValueError, "Actor already belongs to current ActorPool"),
        ("full", _full, Full, "Cannot add 2 items to queue of size 0 and maxsize 1."),
        ("empty", _empty, Empty, "Cannot get 2 items from queue of size 0."),
        ("items", _queue(lambda queue: queue.put_nowait_batch(5)), TypeError, "Argument 'items' must be an Iterable"),
        ("count", _queue(lambda queue: queue.get_nowait_batch("a")), TypeError, "Argument 'num_items' must be an int"),
        ("negative", _queue(lambda queue: queue.get_nowait_batch(-1)), ValueError, "'num_items' must be nonnegative"),
        ("put", _queue(lambda queue: queue.put(1, timeout=-1)), ValueError, "'timeout' must be a non-negative number"),
        ("get", _queue(lambda queue: queue.get(timeout=-1)), ValueError, "'timeout' must be a non-negative number"),
        ("processes", lambda: Pool(-1), ValueError, "Processes in the pool must be >0."),
        (
            "too many",
            lambda: Pool(1000),
            ValueError,
            "Tried to start a pool with 1000 processes on an existing ray cluster, but there are only 4 CPUs in the ray cluster.",
        ),
        ("chunks", lambda: list(as_completed([ray.put(1)], chunk_size=0)), ValueError, "`chunk_size` must be >= 1"),
        ("map", lambda: list(map_unordered(function, [1], chunk_size=0)), ValueError, "`chunk_size` must be >= 1"),
        (
            "pressure",
            lambda: list(map_unordered(function, [1], backpressure_size=-1)),
            ValueError,
            "backpressure_size must be positive.",
        ),
        ("metric", lambda: metrics.Counter(""), ValueError, "Empty name is not allowed. Please provide a metric name."),
        ("keys", lambda: metrics.Counter("phrases_keys", tag_keys=["a"]), TypeError, "tag_keys should be a tuple type, got:"),
        ("key", lambda: metrics.Counter("phrases_key", tag_keys=(1,)), TypeError, "Tag keys must be str, got"),
        ("no tag", _counter(), ValueError, "Missing value for tag key(s): kind."),
        (
            "tag",
            lambda: metrics.Counter("phrases_tag").set_default_tags({"other": "a"}),
            ValueError,
            "Unrecognized tag key other.",
        ),
        ("tag value", _counter({"kind": 1}), TypeError, "Tag values must be str, got"),
        ("value", _counter({"kind": "a"}, "1"), TypeError, "value must be int or float, got"),
        ("below", _counter({"kind": "a"}, -1), ValueError, "value must be >0, got -1"),
        (
            "histogram",
            lambda: metrics.Histogram("phrases_histogram"),
            ValueError,
            "boundaries argument should be provided when using the Histogram class.",
        ),
        (
            "boundaries",
            lambda: metrics.Histogram("phrases_boundaries", boundaries=[-1, 1]),
            ValueError,
            "Invalid `boundaries` argument at index 0, [-1, 1]. Use positive values for the arguments.",
        ),
        ("gauge", lambda: metrics.Gauge("phrases_gauge").set("a"), TypeError, "value must be int or float, got"),
    ]
)
def test_an_error_of_a_utility_has_this_phrase(raises: Raises, kind: Any, phrase: str) -> None:
    check(raises, kind, phrase)


def test_what_is_no_method_of_the_driver_says_so() -> None:
    with pytest.raises(AssertionError, match="This method is only available when the process is a"):
        ray.get_runtime_context().get_assigned_resources()
