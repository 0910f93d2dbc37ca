"""`ray.util.metrics`, and `oxiray metrics`, which shows what it recorded."""

from __future__ import annotations

import logging
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from ray.util.metrics import Counter, Gauge, Histogram

PATIENCE = 60.0


def command(address: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from oxiray._cli import main; sys.argv = ['oxiray', 'metrics', '--address', sys.argv[1]]; main()"
    line = [sys.executable, "-c", code, address]
    return subprocess.run(line, capture_output=True, text=True, check=True, timeout=60)


def shown(*lines: str, absent: str | None = None) -> str:
    """The text of all metrics, as soon as it has these lines, and nothing that begins with `absent`."""
    address = ray.get_runtime_context().gcs_address
    end = time.monotonic() + PATIENCE
    while True:
        text = command(address).stdout
        found = text.splitlines()
        if all(line in found for line in lines) and not any(absent and line.startswith(absent) for line in found):
            return text
        assert time.monotonic() < end, text


@pytest.fixture(scope="module", autouse=True)
def running() -> Iterator[None]:
    ray.shutdown()
    ray.init(address="local", num_cpus=2)
    yield
    ray.shutdown()


@ray.remote
def count(metric: Counter, number: int) -> None:
    metric.inc(number, {"by": "task"})


@ray.remote(max_calls=1)
def count_and_leave(metric: Counter, number: int) -> None:
    metric.inc(number, {"by": "task"})


@ray.remote
class Measures:
    def __init__(self) -> None:
        self.depth = Gauge("depth", "How deep it is", ("where",)).set_default_tags({"where": "here"})
        self.seconds = Histogram("seconds", boundaries=[1, 0.5])

    def measure(self, *values: float) -> tuple[int, str]:
        for value in values:
            self.depth.set(value)
            self.seconds.observe(value)
        return os.getpid(), ray.get_runtime_context().get_worker_id()


def test_a_counter_is_summed_over_driver_tasks_and_actors() -> None:
    counter = Counter("served", "Requests served", ("by",))
    counter.inc(tags={"by": "driver"})
    counter.inc(0.5, tags={"by": "task"})
    ray.get([count.remote(counter, 1), count_and_leave.remote(counter, 2), count_and_leave.remote(counter, 3)])
    text = shown('ray_served_total{by="driver"} 1.0', 'ray_served_total{by="task"} 6.5')
    assert "# HELP ray_served_total Requests served\n# TYPE ray_served_total counter\n" in text


def test_a_gauge_is_its_processs_and_goes_with_it_and_a_histogram_stays() -> None:
    actors: list[Any] = [Measures.remote(), Measures.remote()]
    (pid, first), (_, second) = (ray.get(actors[0].measure.remote(0.5, 4)), ray.get(actors[1].measure.remote(0.75)))
    lasting = ['ray_seconds_bucket{le="0.5"} 1', 'ray_seconds_bucket{le="1.0"} 2', 'ray_seconds_bucket{le="+Inf"} 3']
    lasting += ["ray_seconds_sum 5.25", "ray_seconds_count 3", "# TYPE ray_seconds histogram"]
    gauges = [f'ray_depth{{WorkerId="{one}",where="here"}} {value}' for one, value in ((first, 4.0), (second, 0.75))]
    shown(*lasting, *gauges, "# HELP ray_depth How deep it is", "# TYPE ray_depth gauge")
    os.kill(pid, signal.SIGKILL)
    shown(*lasting, gauges[1], absent=f'ray_depth{{WorkerId="{first}"')
    # The last handle goes: the actor leaves, and what it measured last is told before.
    ray.get(actors[1].measure.remote(9))
    del actors
    shown("ray_seconds_count 4", absent="ray_depth")


@ray.remote(num_cpus=1)
class Holder:
    pass


def test_the_cluster_has_gauges_of_its_own() -> None:
    holder = Holder.remote()
    ray.get(holder.__ray_ready__.remote())
    (node,) = ray.nodes()
    at = f'NodeAddress="{node["NodeManagerAddress"]}",NodeId="{node["NodeID"]}"'
    cpus = [f'ray_resources{{Name="CPU",{at},State="{state}"}} 1.0' for state in ("USED", "AVAILABLE")]
    where = f'JobId="{ray.get_runtime_context().get_job_id()}",Name="Holder",NodeAddress="{node["NodeManagerAddress"]}"'
    alive = f'ray_actors{{{where},Source="gcs",State="ALIVE"}} 1.0'
    text = shown(alive, *cpus, 'ray_cluster_active_nodes{node_type="node"} 1.0', "ray_running_jobs 1.0")
    store = re.findall(r"^ray_object_store_(?:used|available)_memory{" + re.escape(at) + r"} (\S+)$", text, re.MULTILINE)
    assert sum(map(float, store)) == ray.cluster_resources()["object_store_memory"]
    Gauge("resources").set(1)
    ray.kill(holder)
    text = shown(f'ray_resources{{Name="CPU",{at},State="AVAILABLE"}} 2.0', absent=alive)
    assert text.count("# TYPE ray_resources ") == 1
    end = time.monotonic() + PATIENCE
    while "note: `resources` is the name of a metric of the cluster's own" not in command(ray.get_runtime_context().gcs_address).stderr:
        assert time.monotonic() < end


def test_texts_are_escaped() -> None:
    Gauge("odd", 'a "b"\\\nc', ("k-1",)).set(float("-inf"), {"k-1": 'x"\\\ny'})
    worker = ray.get_runtime_context().get_worker_id()
    expected = f'ray_odd{{WorkerId="{worker}",k_1="x\\"\\\\\\ny"}} -Inf'
    assert '# HELP ray_odd a "b"\\\\\\nc\n' in shown(expected)


def test_what_the_classes_say_of_themselves() -> None:
    counter = Counter("said", "what", tag_keys=("a",))
    assert counter.set_default_tags({"a": "b"}) is counter
    assert counter.info == {"name": "said", "description": "what", "tag_keys": ("a",), "default_tags": {"a": "b"}}
    histogram = Histogram("said_too", boundaries=[1, 2])
    assert histogram.info["boundaries"] == [1, 2]
    copies: list[Any] = [pickle.loads(pickle.dumps(one)) for one in (counter, Gauge("said_as_well"), histogram)]
    assert [type(copy) for copy in copies] == [Counter, Gauge, Histogram]
    assert copies[0].info == {**counter.info, "default_tags": {}}
    assert copies[2].info == histogram.info


WRONG: list[tuple[type[Exception], str, Callable[[], object]]] = [
    (ValueError, "Empty name is not allowed. Please provide a metric name.", lambda: Counter("")),
    (TypeError, "tag_keys should be a tuple type, got: <class 'list'>, for the metric 'wrong'", lambda: Counter("wrong", tag_keys=["a"])),  # type: ignore[arg-type]
    (TypeError, "Tag keys must be str, got <class 'int'>, among those of the metric 'wrong'", lambda: Counter("wrong", tag_keys=(1,))),  # type: ignore[arg-type]
    (ValueError, "'wrong_histogram' has none: give some", lambda: Histogram("wrong_histogram")),
    (ValueError, "'wrong_histogram' has none: give some", lambda: Histogram("wrong_histogram", boundaries=[])),
    (ValueError, "Invalid `boundaries` argument at index 1, [1, 0].", lambda: Histogram("wrong_histogram", boundaries=[1, 0])),
    (TypeError, "got <class 'str'>, for the metric 'wrong'", lambda: Counter("wrong").inc("1")),  # type: ignore[arg-type]
    (ValueError, "value must be >0, got 0. A counter only grows", lambda: Counter("wrong").inc(0)),
    (TypeError, "got <class 'str'>, for the metric 'wrong_gauge'", lambda: Gauge("wrong_gauge").set("1")),  # type: ignore[arg-type]
    (TypeError, "got <class 'NoneType'>, for the metric 'wrong_h'", lambda: Histogram("wrong_h", boundaries=[1]).observe(None)),  # type: ignore[arg-type]
    (ValueError, "Missing value for tag key(s): a,b. Give it", lambda: Counter("wrong", tag_keys=("a", "b")).inc()),
    (TypeError, "got <class 'int'>, for 'a' of the metric 'wrong'", lambda: Counter("wrong", tag_keys=("a",)).inc(tags={"a": 1})),  # type: ignore[dict-item]
    (ValueError, "Unrecognized tag key b. The metric 'wrong' has the tag_keys ('a',)", lambda: Counter("wrong", tag_keys=("a",)).set_default_tags({"b": "c"})),
    (TypeError, "got <class 'int'>, for 'a' of the metric 'wrong'", lambda: Counter("wrong", tag_keys=("a",)).set_default_tags({"a": 1})),  # type: ignore[dict-item]
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_arguments_are_refused(number: int) -> None:
    kind, text, act = WRONG[number]
    with pytest.raises(kind, match=re.escape(text)):
        act()


def test_odd_names_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="'1-2' is not kept"):
        discarded = Counter("1-2", tag_keys=("a",))
    discarded.inc()
    with pytest.warns(FutureWarning, match="colon"):
        Gauge("odd:name").set(1)
    Gauge("nothing").set(None)
    text = shown(f'ray_odd:name{{WorkerId="{ray.get_runtime_context().get_worker_id()}"}} 1.0')
    assert "1_2" not in text and "1-2" not in text and "ray_nothing" not in text


def test_a_name_that_is_taken_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    Counter("taken").inc()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            Gauge("taken").set(1)
    assert caplog.text.count("`taken` already, of another kind") == 1
    shown("ray_taken_total 1.0")


@ray.remote(max_calls=1)
def many(name: str, number: int, offset: int) -> str:
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("oxiray.util.metrics").addHandler(handler)
    counter = Counter(name, tag_keys=("n",))
    for one in range(offset, offset + number):
        counter.inc(tags={"n": str(one)})
    return "\n".join(told)


def test_there_is_an_end_to_tags_in_a_process_and_in_the_cluster(cluster: Callable[..., ray.RayContext]) -> None:
    context = cluster(address="local")
    assert "have 10000 lines already" in ray.get(many.remote("wide", 10_001, 0))
    for offset in (10_000, 20_000):
        assert ray.get(many.remote("wide", 9_000, offset)) == ""
    end = time.monotonic() + PATIENCE
    done = command(context.address_info["address"])
    # Other notes may come sooner.
    while "note: `wide` has combinations of tags that are not kept: all metrics together" not in done.stderr:
        assert time.monotonic() < end, done.stderr
        done = command(context.address_info["address"])
    # What programs record comes after the cluster's own, but for the store's objects and the tasks that still run (the worker of the
    # last one may not have ended); this program has recorded something in other tests.
    _, _, after = done.stdout.rpartition("ray_scheduler_unscheduleable_tasks")
    recorded = [line for line in after.splitlines()[1:] if not line.startswith(("#", "ray_tasks{", "ray_spill_manager_"))]
    assert len(recorded) == 20_000


@ray.remote(num_gpus=1)
class DeviceHolder:
    def job(self) -> str:
        return str(ray.get_runtime_context().get_job_id())


def test_what_devices_were_granted_for_and_what_waits_for_them_is_counted(cluster: Callable[..., Any]) -> None:
    cluster(address="local", num_cpus=2, num_gpus=1)
    holder = DeviceHolder.remote()
    job = ray.get(holder.job.remote())

    def granted() -> float:
        text = command(ray.get_runtime_context().gcs_address).stdout
        found = re.search(rf'^oxiray_grant_seconds_total{{job="{job}",resource="GPU"}} (\S+)$', text, re.MULTILINE)
        return float(found.group(1)) if found else 0.0

    end = time.monotonic() + PATIENCE
    while not (first := granted()):
        assert time.monotonic() < end
    waits = DeviceHolder.remote()
    shown('oxiray_waiting{kind="actor",reason="busy",resource="GPU"} 1.0')
    ray.kill(holder)
    assert ray.get(waits.job.remote()) == job
    text = shown('oxiray_device_return_seconds_count{resource="GPU"} 1', absent="oxiray_waiting{")
    assert 'oxiray_device_return_seconds_bucket{resource="GPU",le="+Inf"} 1\n' in text
    assert granted() > first


def test_what_was_recorded_before_init_is_told_and_gauges_to_each_cluster(cluster: Callable[..., Any]) -> None:
    counter, gauge = Counter("early"), Gauge("early_depth")
    counter.inc(2)
    gauge.set(3)
    cluster(address="local")
    counter.inc()

    def depth() -> str:
        return f'ray_early_depth{{WorkerId="{ray.get_runtime_context().get_worker_id()}"}} 3.0'

    shown("ray_early_total 3.0", depth())
    ray.shutdown()
    cluster(address="local")
    assert "ray_early_total" not in shown(depth())


def test_workers_of_other_nodes_and_drivers_that_left_are_counted() -> None:
    ray.shutdown()
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        nodes.add_node(num_cpus=1, resources={"far": 1})
        ray.init(address=nodes.address)
        counter = Counter("spread", tag_keys=("by",))
        ray.get(count.options(resources={"far": 1}).remote(counter, 2))
        counter.inc(tags={"by": "driver"})
        shown('ray_spread_total{by="task"} 2.0', 'ray_spread_total{by="driver"} 1.0')
        counter.inc(tags={"by": "driver"})
        Gauge("passing").set(1)
        left = ray.get_runtime_context().get_worker_id()
        ray.shutdown()
        ray.init(address=nodes.address)
        shown('ray_spread_total{by="driver"} 2.0', absent=f'ray_passing{{WorkerId="{left}"')
    finally:
        ray.shutdown()
        nodes.shutdown()
