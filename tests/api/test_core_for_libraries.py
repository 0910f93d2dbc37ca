"""What Ray's libraries ask of the core by private names: values kept, sizes, states, ends of objects, generators' statistics."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import oxiray
import pytest
from oxiray import _session
from oxiray._private import grpc_utils, internal_api, worker
from oxiray._private.state import state
from oxiray._raylet import (
    IMPLICIT_RESOURCE_PREFIX,
    GcsClient,
    StreamingGeneratorStats,
    async_task_id,
    merge_instantaneous_total_cython,
    node_labels_match_selector,
    time_weighted_average_cython,
)
from oxiray.util.annotations import AnnotationType, _mark_annotated
from oxiray.util.debug import _test_some_code_for_memory_leaks
from oxiray.util.placement_group import _valid_resource_shape, placement_group, placement_group_table, remove_placement_group
from oxiray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from watching import wait_until

#: The numbers that Ray's protocol has for the states of an actor.
PENDING, ALIVE, RESTARTING, DEAD = range(1, 5)


@pytest.fixture(scope="module", autouse=True)
def connected() -> Iterator[None]:
    oxiray.init(num_cpus=2, log_to_driver=False)
    yield
    oxiray.shutdown()


def test_kept_values_through_the_client_of_the_head() -> None:
    client = GcsClient(address=oxiray.get_runtime_context().gcs_address)
    assert client.internal_kv_put(b"a", b"1", overwrite=False, namespace=b"n") == 1
    assert client.internal_kv_put(b"a", b"2", overwrite=False, namespace=b"n") == 0
    assert client.internal_kv_get(b"a", namespace=b"n") == b"1"
    assert client.internal_kv_multi_get([b"a", b"b"], namespace=b"n") == {b"a": b"1"}
    assert client.internal_kv_keys(b"", namespace=b"n") == [b"a"]
    assert client.internal_kv_exists(b"a", namespace=b"n") and not client.internal_kv_exists(b"a")
    assert client.internal_kv_del(b"a", namespace=b"n") == 1
    with pytest.raises(AttributeError, match="ray.util.state"):
        client.get_all_job_info  # noqa: B018


def test_a_generator_is_told_how_long_its_object_took() -> None:
    @oxiray.remote(num_returns="streaming")
    def told() -> Iterator[Any]:
        first = yield b"x" * 4_000_000
        second = yield [type(first).__name__, first.object_creation_dur_s]
        yield second.object_creation_dur_s

    large, first, second = (oxiray.get(reference) for reference in told.remote())
    assert len(large) == 4_000_000
    assert first[0] == StreamingGeneratorStats.__name__
    assert 0 < first[1] < 30 and 0 < second < 30


def test_a_generator_is_exhausted_when_everything_was_read() -> None:
    @oxiray.remote(num_returns="streaming")
    def listed() -> Any:
        yield from [1, 2, 3]

    generator = listed.remote()
    assert not generator._stream_exhausted()
    assert [oxiray.get(reference) for reference in generator] == [1, 2, 3]
    assert generator._stream_exhausted()


def test_a_generator_ends_by_its_return_and_by_what_it_raises() -> None:
    @oxiray.remote(num_returns="streaming")
    def failing() -> Iterator[int]:
        yield 1
        raise ValueError("enough")

    generator = failing.remote()
    assert oxiray.get(next(generator)) == 1
    with pytest.raises(ValueError, match="enough"):
        oxiray.get(next(generator))


def test_the_end_of_an_object_is_told_when_nothing_refers_to_it() -> None:
    told: list[bytes] = []
    ended = threading.Event()

    def note(identifier: bytes) -> None:
        told.append(identifier)
        ended.set()

    @oxiray.remote
    def slow(value: Any, gate: Any) -> int:
        while not os.path.exists(gate):
            time.sleep(0.01)
        return 1

    reference = oxiray.put(b"x" * 200_000)
    identifier = reference.binary()
    gate = f"/tmp/oxiray-gate-{os.getpid()}"
    assert worker.global_worker.core_worker.add_object_out_of_scope_callback(reference, note)
    running = slow.remote(reference, gate)
    del reference
    assert not ended.wait(0.3), "a call that it is an argument of is under way"
    with open(gate, "w"):
        pass
    assert oxiray.get(running) == 1
    os.unlink(gate)
    assert ended.wait(30)
    assert told == [identifier]


def test_the_end_of_an_object_of_others_is_not_told() -> None:
    @oxiray.remote
    def make() -> Any:
        return [oxiray.put(1)]

    (inner,) = oxiray.get(make.remote())
    assert not worker.global_worker.core_worker.add_object_out_of_scope_callback(inner, print)


def test_the_state_of_an_actor_is_known_without_asking(tmp_path: Path) -> None:
    begun, let_go = tmp_path / "begun", tmp_path / "let go"

    @oxiray.remote(max_restarts=1)
    class Lasting:
        def __init__(self) -> None:
            if begun.exists():
                wait_until(let_go.exists)
            begun.touch()

        def pid(self) -> int:
            return os.getpid()

    actor = Lasting.remote()
    assert actor._get_local_state() in (PENDING, ALIVE)
    pid = oxiray.get(actor.pid.remote())
    assert actor._get_local_state() == ALIVE
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: actor._get_local_state() == RESTARTING)
    let_go.touch()
    wait_until(lambda: actor._get_local_state() == ALIVE)
    assert oxiray.get(actor.pid.remote()) != pid
    oxiray.kill(actor)
    wait_until(lambda: actor._get_local_state() == DEAD)


def test_machines_through_the_client_of_the_head() -> None:
    client = GcsClient()
    (node,) = oxiray.nodes()
    ((identifier, found),) = client.get_all_node_info(timeout=1).items()
    assert identifier.hex() == node["NodeID"] and found.node_id == identifier.binary()
    assert (found.node_name, found.state, found.instance_id) == (node["NodeManagerAddress"], 0, "")
    assert found.labels == node["Labels"] and found.resources_total["CPU"] == 2.0
    (free,) = client.get_all_resource_usage(timeout=1).resource_usage_data.batch
    assert free.node_id == found.node_id and free.resources_available["CPU"] <= 2.0


class Point(NamedTuple):
    timestamp: float
    value: float


#: Gauges, their sum over time, a window (None for the whole) and the first one's average over it, as Ray 2.60 told.
GAUGES: list[Any] = [
    ([[(3.0957, 0.0), (3.0957, 4.0), (3.0957, 2.0)], [(1.1666, 0.0), (1.1666, 3.0), (1.1766, 0.0), (1.1776, 0.0)], []], [(1.17, 3.0), (1.18, 0.0), (3.1, 2.0)], (None, None), 2.0),
    ([[(0.0992, 4.0)], [(1.7269, 1.0), (2.0269, 0.0)], [(2.3418, 1.0), (2.3418, 4.0), (2.6418, 1.0), (2.6458, 0.0)], []], [(0.1, 4.0), (1.73, 5.0), (2.03, 4.0), (2.34, 8.0), (2.64, 5.0), (2.65, 4.0)], (None, 2.482072475567459), 4.0),
    ([[(0.9352, 2.0), (0.9362, 1.0), (2.1362, 1.0)], [(0.4637, 3.0), (0.4677, 3.0)], []], [(0.46, 3.0), (0.94, 4.0)], (0.47226311301984847, 0.8248105182178661), 0.0),
    ([[(1.8665, 0.0), (2.1665, 4.0), (2.1705, 2.0)], [(1.4006, 4.0), (1.4106, 0.0), (1.4106, 2.0), (1.4206, 0.0)]], [(1.4, 4.0), (1.41, 2.0), (1.42, 0.0), (2.17, 2.0)], (0.24267771038887886, 3.2356442726383436), 0.7171107664041431),
    ([[(1.4373, 0.0), (1.4473, 2.0), (1.4483, 4.0), (1.4483, 3.0), (1.4483, 1.0)], [(2.7365, 1.0)], [(0.8058, 0.0), (0.8068, 3.0), (0.8168, 4.0), (0.8208, 1.0), (0.8308, 4.0), (0.8348, 3.0)]], [(0.81, 3.0), (0.82, 1.0), (0.83, 3.0), (1.45, 4.0), (2.74, 5.0)], (3.9458683240047443, None), None),
]


@pytest.mark.parametrize(("gauges", "total", "window", "average"), GAUGES)
def test_gauges_are_added_up_as_ray_does(gauges: Any, total: Any, window: Any, average: float | None) -> None:
    series = [[Point(*point) for point in gauge] for gauge in gauges]
    assert merge_instantaneous_total_cython(series) == [pytest.approx(point) for point in total]
    start, end = (-math.inf if edge is None else edge for edge in window)
    assert time_weighted_average_cython(series[0], start, end, 1.0) == (None if average is None else pytest.approx(average))


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ({}, True),
        ({"zone": "a"}, True),
        ({"zone": "!a"}, False),
        ({"zone": "in(a, b)", "kind": "!spot"}, True),
        ({"zone": "!in(b,c)"}, True),
        ({"kind": "spot"}, False),
    ],
)
def test_labels_are_what_a_selector_asks_for(selector: dict[str, str], matches: bool) -> None:
    assert node_labels_match_selector({"zone": "a"}, selector) is matches


async def _start_and_stop(server: Any) -> None:
    await server.start()
    await server.stop(0)


def test_a_server_between_replicas_listens_nowhere() -> None:
    server = grpc_utils.create_grpc_server_with_interceptors(asynchronous=True, options=[])
    assert server.add_insecure_port("[::]:0") == 0
    asyncio.run(_start_and_stop(server))
    call = grpc_utils.init_grpc_channel("192.0.2.1:0", asynchronous=True).unary_unary("/serve.ASGIService/HandleRequest")
    with pytest.raises(NotImplementedError, match="HandleRequest: calls between replicas over gRPC .* RAY_SERVE_USE_GRPC_BY_DEFAULT"):
        call(b"")


def test_hooks_are_called_after_connecting() -> None:
    called: list[bool] = []
    worker._post_init_hooks.append(lambda: called.append(oxiray.is_initialized()))
    try:
        oxiray.shutdown()
        oxiray.init(num_cpus=2, log_to_driver=False)
    finally:
        _session.post_init_hooks.pop()
    assert called == [True]


def test_reducers_of_libraries_are_used_and_taken_back() -> None:
    class Thing:
        pass

    context = worker.global_worker.get_serialization_context()
    context._register_cloudpickle_reducer(Thing, lambda _: (str, ("reduced",)))
    try:
        assert cloudpickle.loads(cloudpickle.dumps(Thing())) == "reduced"
        assert oxiray.get(oxiray.put(Thing())) == "reduced"
    finally:
        context._unregister_cloudpickle_reducer(Thing)
    assert cloudpickle.loads(cloudpickle.dumps(Thing())) != "reduced"
    assert 100_000 <= context.serialize(bytes(100_000)).total_bytes < 101_000


def test_the_node_and_its_facts() -> None:
    node = worker._global_node
    assert os.path.isdir(node.get_session_dir_path()) and node.session_name in node.get_session_dir_path()
    assert worker._mode() == worker.SCRIPT_MODE
    assert state.get_draining_nodes() == {}
    assert state.get_cluster_config() is None and state.get_max_resources_from_cluster_config() is None
    assert list(state.total_resources_per_node()) == [node.node_id]
    with pytest.raises(NotImplementedError, match="oxiray memory"):
        internal_api.get_memory_info_reply(internal_api.get_state_from_address())


def test_the_table_of_placement_groups_by_their_identifiers() -> None:
    group = placement_group([{"CPU": 0.1}] * 2)
    assert group.wait(timeout_seconds=30)
    try:
        told = state.placement_group_table(group.id)
        assert told == placement_group_table(group)
        assert set(told["bundles_to_node_id"].values()) == {worker._global_node.node_id}
        assert state.placement_group_table()[group.id.hex()] == told
    finally:
        remove_placement_group(group)


def test_what_a_cancelled_call_does_at_its_end_may_belong_to_nobody() -> None:
    @oxiray.remote(num_cpus=0)
    class Waiting:
        def __init__(self) -> None:
            self.seen: list[Any] = []

        async def cancelled(self, own: Any) -> None:
            own_task = oxiray.get_runtime_context().get_task_id()
            self.seen.append(async_task_id.get().hex() == own_task)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                token = async_task_id.set(None)
                self.seen.append(async_task_id.get())
                self.seen.append(await own[0].answer.remote())
                async_task_id.reset(token)
                self.seen.append(async_task_id.get().hex() == own_task)
                raise

        async def answer(self) -> str:
            return "answered"

        async def told(self) -> list[Any]:
            return self.seen

    actor = Waiting.remote()
    call = actor.cancelled.remote([actor])
    wait_until(lambda: len(oxiray.get(actor.told.remote())) == 1)
    oxiray.cancel(call)
    with pytest.raises(oxiray.exceptions.TaskCancelledError):
        oxiray.get(call)
    assert oxiray.get(actor.told.remote()) == [True, None, "answered", True]
    assert async_task_id.get() is None, "a program runs no call"


def test_a_hook_sees_what_is_launched_and_may_refuse_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str, str, dict[str, float], Any]] = []

    def look(launched: Any, resources: dict[str, float], strategy: Any) -> None:
        seen.append((launched.module_name, launched.class_name, launched.function_name, resources, strategy))
        if resources.get("GPU"):
            raise RuntimeError("no room for it")

    @oxiray.remote(num_cpus=0.5)
    def plain() -> int:
        return 1

    @oxiray.remote(num_cpus=0)
    class Made:
        def answer(self) -> int:
            return 2

    group = oxiray.util.placement_group([{"CPU": 1}])
    within = PlacementGroupSchedulingStrategy(group, 0, True)
    monkeypatch.setattr("oxiray.remote_function._task_launch_hook", look)
    monkeypatch.setattr("oxiray.actor._actor_launch_hook", look)
    assert oxiray.get([plain.remote(), plain.options(scheduling_strategy="SPREAD").remote()]) == [1, 1]
    assert oxiray.get(plain.options(scheduling_strategy=within).remote()) == 1
    assert oxiray.get(Made.remote().answer.remote()) == 2
    module = plain._function.__module__
    assert [one[:4] for one in seen[:3]] == [(module, "", "plain", {"CPU": 0.5})] * 3
    assert [one[4] for one in seen[:2]] == ["DEFAULT", "SPREAD"]
    assert isinstance(seen[2][4], PlacementGroupSchedulingStrategy) and seen[2][4].placement_group == group
    assert seen[3][:3] == (module, "Made", "__init__")
    for refused in (plain, Made):
        with pytest.raises(RuntimeError, match="no room for it"):
            refused.options(num_gpus=1).remote()
    oxiray.util.remove_placement_group(group)


def test_what_a_group_captures_is_told_to_a_hook() -> None:
    @oxiray.remote(num_cpus=1)
    def inside() -> tuple[bool, str]:
        from oxiray import remote_function

        told: list[Any] = []
        remote_function._task_launch_hook = lambda launched, resources, strategy: told.append(strategy)
        try:
            oxiray.get(plain.options(num_cpus=0).remote())
        finally:
            remote_function._task_launch_hook = None
        return told[0].placement_group_capture_child_tasks, told[0].placement_group.id.hex()

    @oxiray.remote
    def plain() -> None:
        pass

    group = oxiray.util.placement_group([{"CPU": 1}])
    within = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
    assert oxiray.get(inside.options(scheduling_strategy=within).remote()) == (True, group.id.hex())
    oxiray.util.remove_placement_group(group)


def test_small_names() -> None:
    assert _valid_resource_shape({"CPU": 1}, [{"GPU": 1}, {"CPU": 2}]) and not _valid_resource_shape({"CPU": 3}, [{"CPU": 2}])
    assert _mark_annotated(lambda: 0)._annotated_type == AnnotationType.UNKNOWN


def test_code_whose_memory_grows_is_found() -> None:
    kept: list[bytes] = []
    found = _test_some_code_for_memory_leaks("growing", None, lambda: kept.append(bytes(50_000)), 8, min_memory_increase=100_000)
    assert found and found[0].slope > 40_000
    assert not _test_some_code_for_memory_leaks("steady", None, lambda: sum(range(100)), 8, min_memory_increase=100_000)


def test_an_address_of_this_machine_means_the_cluster_that_it_is_connected_to() -> None:
    here = oxiray.get_runtime_context().gcs_address
    port = int(here.rpartition(":")[2])
    hosts = ("localhost", "127.0.0.1", "0.0.0.0")
    for meant in (None, "auto", "local", here, f"ray://{here}", "ray://localhost:10001", *(f"{host}:{port}" for host in hosts)):
        _session.ensure_at(meant)
    for other in (f"localhost:{port + 1}", f"192.0.2.77:{port}", "ray://192.0.2.77:10001", "localhost"):
        with pytest.raises(ValueError, match="was asked about"):
            _session.ensure_at(other)


def test_an_outward_address_of_the_head_has_local_names_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_session._core, "context", lambda: {"address": "192.0.2.1:6379"})
    for meant in ("192.0.2.1:6379", "localhost:6379", "127.0.0.1:6379", "0.0.0.0:6379", "ray://192.0.2.1:10001", "ray://localhost"):
        _session.ensure_at(meant)
    for other in ("localhost:6380", "192.0.2.2:6379", "192.0.2.1"):
        with pytest.raises(ValueError, match=r"connected to 192\.0\.2\.1:6379"):
            _session.ensure_at(other)


def test_every_node_has_one_of_each_implicit_resource() -> None:
    @oxiray.remote(num_cpus=0)
    class Replica:
        def there(self) -> bool:
            return True

    name = f"{IMPLICIT_RESOURCE_PREFIX}app:Replica"
    half = Replica.options(resources={name: 0.5})
    first, second, third = half.remote(), half.remote(), half.remote()
    assert oxiray.get([first.there.remote(), second.there.remote()], timeout=60) == [True, True]
    waiting = third.there.remote()
    assert oxiray.wait([waiting], timeout=0.5) == ([], [waiting])
    assert name not in oxiray.cluster_resources()
    oxiray.kill(first)
    assert oxiray.get(waiting, timeout=60)
    with pytest.raises(oxiray.exceptions.ActorUnschedulableError):
        oxiray.get(Replica.options(resources={name: 1.5}).remote().there.remote(), timeout=60)
    for replica in (second, third):
        oxiray.kill(replica)
    wait_until(lambda: name not in oxiray.available_resources(), 60)
