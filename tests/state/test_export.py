"""What happens in a cluster as Ray's events, at a collector that this file stands in for, as KubeRay's pods have one."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from homes import Home
from watching import wait_until

pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).resolve().parent.parent.parent
RAY = ROOT / ".build" / "ray" / "bin" / "python"
#: Events of Ray 2.60, one at least of each type.
RECORDED = [json.loads(line) for line in (ROOT / "tests/fixtures/ray_events.jsonl").read_text().splitlines()]
#: How long events of calls may take to come, in seconds: where the cluster answers late, it is asked again twenty times as late.
LIMIT_S = 150.0
SECRET = "a-password-of-a-program"
WORK = """
import os, ray
environment = {"env_vars": {"PASSWORD": os.environ["SECRET_OF_THE_TEST"]}}
ray.init(address="auto", namespace="place", runtime_env=environment, logging_level="WARNING")
@ray.remote
def inner(x):
    return x + 1
@ray.remote
def outer(x):
    return ray.get(inner.remote(x))
@ray.remote
class Counter:
    def add(self):
        return 1
@ray.remote(max_retries=0)
def breaks():
    raise ValueError("on purpose")
assert ray.get(outer.remote(1)) == 2
counter = Counter.options(name="named").remote()
assert ray.get(counter.add.remote()) == 1
try:
    ray.get(breaks.remote())
except ValueError:
    pass
print("done", flush=True)
input()
ray.kill(counter)
print("killed", flush=True)
input()
"""


class Collector:
    """Takes events at the path where KubeRay's does, or answers as it is told."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.asked: list[int] = []
        self.status = 200
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                assert self.path == "/v1/events" and self.headers["content-type"] == "application/json"
                collector.asked.append(collector.status)
                if collector.status == 200:
                    collector.events += body
                self.send_response(collector.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/events"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def of(self, field: str) -> list[dict[str, Any]]:
        """What events of one type have of their own."""
        return [event[field] for event in list(self.events) if field in event]

    def states(self, field: str, key: str) -> dict[str, list[str]]:
        """By identifier, the states that were told of, in the order of their moments."""
        found: dict[str, set[tuple[str, str]]] = {}
        for body in self.of(field):
            moments = {(one["timestamp"], one["state"]) for one in body["stateTransitions"]}
            found.setdefault(body[key], set()).update(moments)
        return {known: [state for _, state in sorted(moments)] for known, moments in found.items()}

    def end(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.end()


@contextlib.contextmanager
def cluster(folder: Path, url: str) -> Iterator[Home]:
    home = Home(folder)
    home.environment["RAY_DASHBOARD_AGGREGATOR_AGENT_EVENTS_EXPORT_ADDR"] = url
    started = home.oxiray("start", "--head", f"--port={home.port}", "--num-cpus=2")
    assert started.returncode == 0, started.stderr
    try:
        yield home
    finally:
        home.oxiray("stop", "--force")


@contextlib.contextmanager
def working(home: Home) -> Iterator[subprocess.Popen[str]]:
    """A driver that has done its work, and stays until the end of the block: workers tell of their calls while they live."""
    pipe = subprocess.PIPE
    environment = {**home.environment, "SECRET_OF_THE_TEST": SECRET}
    with subprocess.Popen([sys.executable, "-c", WORK], env=environment, stdin=pipe, stdout=pipe, text=True) as run:
        assert run.stdin is not None and run.stdout is not None and run.stdout.readline() == "done\n"
        try:
            yield run
        finally:
            run.stdin.close()
            run.wait(60)


def shape(value: Any) -> Any:
    """Keys and types; of a list those of its first entry, and of a map of names none."""
    if isinstance(value, dict):
        return {key: "map" if key in ("labels", "resources", "requiredResources", "metadata") else shape(part) for key, part in value.items()}
    if isinstance(value, list):
        return [shape(part) for part in value[:1]]
    return type(value).__name__


def ended_calls(collector: Collector) -> dict[str, list[str]]:
    """By name of the call, the states of its attempt, for those that have ended."""
    names = {one["taskId"]: one["taskName"] for one in collector.of("taskDefinitionEvent")}
    names |= {one["taskId"]: one["actorTaskName"] for one in collector.of("actorTaskDefinitionEvent")}
    states = collector.states("taskLifecycleEvent", "taskId")
    return {name: states[task] for task, name in names.items() if states.get(task, [""])[-1] in ("FINISHED", "FAILED")}


def test_all_that_happens_comes_as_rays_events(collector: Collector, tmp_path: Path) -> None:
    with cluster(tmp_path, collector.url) as home:
        calls = {"inner", "outer", "Counter.__init__", "Counter.add", "breaks"}
        with working(home) as run:
            wait_until(lambda: calls <= set(ended_calls(collector)), LIMIT_S)
            assert run.stdin is not None
            run.stdin.write("\n")
            run.stdin.flush()
            wait_until(lambda: ["DEAD"] in [one[-1:] for one in collector.states("actorLifecycleEvent", "actorId").values()])
        wait_until(lambda: collector.states("driverJobLifecycleEvent", "jobId").get("AQAAAA==") == ["CREATED", "FINISHED"])
        ended = ended_calls(collector)
        assert ended["inner"][0] == "PENDING_ARGS_AVAIL" and ended["inner"][-2:] == ["RUNNING", "FINISHED"]
        assert ended["breaks"][-1] == "FAILED"
        (outer,) = [one for one in collector.of("taskDefinitionEvent") if one["taskName"] == "outer"]
        (inner,) = [one for one in collector.of("taskDefinitionEvent") if one["taskName"] == "inner"]
        assert inner["parentTaskId"] == outer["taskId"] and base64.b64decode(outer["jobId"]) == b"\1\0\0\0"
        (broken,) = [one["rayErrorInfo"] for one in collector.of("taskLifecycleEvent") if "rayErrorInfo" in one]
        assert broken["errorType"] == "TASK_EXECUTION_EXCEPTION" and "on purpose" in broken["errorMessage"]
        (actor,) = collector.of("actorDefinitionEvent")
        assert (actor["className"], actor["name"], actor["rayNamespace"]) == ("Counter", "named", "place")
        lives = collector.states("actorLifecycleEvent", "actorId")[actor["actorId"]]
        assert lives[-2:] == ["ALIVE", "DEAD"], lives
        dead = [one for body in collector.of("actorLifecycleEvent") for one in body["stateTransitions"] if one["state"] == "DEAD"]
        assert "kill" in dead[0]["deathCause"]["actorDiedErrorContext"]["errorMessage"]
        (node,) = collector.of("nodeLifecycleEvent")
        assert node["stateTransitions"][0]["resources"]["CPU"] == 2.0
        (job,) = [one for one in collector.of("driverJobDefinitionEvent") if one["jobId"] == "AQAAAA=="]
        assert "<redacted>" in job["config"]["serializedRuntimeEnv"]
    assert SECRET not in json.dumps(collector.events)
    assert len({event["eventId"] for event in collector.events}) == len(collector.events)
    have_rays_shape(collector.events)
    if RAY.exists():
        are_rays_protobufs(collector.events)


def have_rays_shape(events: list[dict[str, Any]]) -> None:
    """Of each type, an event of Ray has the same keys and types."""
    known: dict[str, list[Any]] = {}
    for event in RECORDED:
        known.setdefault(event["eventType"], []).append(shape(event))
    assert {event["eventType"] for event in events} == set(known)
    for event in events:
        assert any(shape(event) == one for one in known[event["eventType"]]), (event, known[event["eventType"]])


def are_rays_protobufs(events: list[dict[str, Any]]) -> None:
    """Ray's own classes read each of them, and write them in the same way."""
    program = """
import json, sys
from google.protobuf.json_format import ParseDict
from ray._private.protobuf_compat import message_to_json
from ray.core.generated.events_base_event_pb2 import RayEvent
for event in json.load(sys.stdin):
    read = ParseDict(event, RayEvent())
    told = json.loads(message_to_json(read, always_print_fields_with_no_presence=True, preserving_proto_field_name=False))
    assert told == event, (told, event)
"""
    done = subprocess.run([str(RAY), "-c", program], input=json.dumps(events), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_what_a_collector_cannot_take_now_comes_later(collector: Collector, tmp_path: Path) -> None:
    collector.status = 503
    with cluster(tmp_path, collector.url) as home:
        wait_until(lambda: len(collector.asked) > 1)
        assert collector.events == []
        log = next(home.folder.glob("oxiray-*/logs/session_*/events.log"))
        wait_until(lambda: "events cannot be sent: it answers 503" in log.read_text())
        collector.status = 200
        wait_until(lambda: collector.of("nodeDefinitionEvent"))
        wait_until(lambda: "events are sent again" in log.read_text())
        # Nothing is sent twice, and no second node is there.
        assert len(collector.of("nodeDefinitionEvent")) == 1


@pytest.mark.parametrize("url", ["https://127.0.0.1/v1/events", "localhost:8084", "http://", "http:///v1/events"])
def test_an_address_that_is_none_is_said(tmp_path: Path, url: str) -> None:
    home = Home(tmp_path)
    home.environment["RAY_DASHBOARD_AGGREGATOR_AGENT_EVENTS_EXPORT_ADDR"] = url
    refused = home.oxiray("start", "--head", f"--port={home.port}", "--num-cpus=1")
    assert refused.returncode != 0
    assert f"RAY_DASHBOARD_AGGREGATOR_AGENT_EVENTS_EXPORT_ADDR={url} is no collector" in refused.stderr
    assert "http://localhost:8084/v1/events" in refused.stderr
