"""Calls as spans at a collector of OpenTelemetry, which this file stands in for: `oxiray start --head --otlp`."""

from __future__ import annotations

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
from homes import PREAMBLE, Home
from watching import wait_until

pytestmark = pytest.mark.timeout(400)

#: How long spans may take to come, in seconds: where the cluster answers late, it is asked again twenty times as late.
LIMIT_S = 150.0
WORK = """
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
counter = Counter.remote()
assert ray.get(counter.add.remote()) == 1
try:
    ray.get(breaks.remote())
except ValueError:
    pass
"""


class Collector:
    """Takes spans, or answers as it is told."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.asked: list[tuple[str, str | None]] = []
        self.status = 200
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                collector.asked.append((self.path, self.headers["x-key"]))
                if collector.status == 200:
                    for resource in body["resourceSpans"]:
                        for scope in resource["scopeSpans"]:
                            collector.spans += scope["spans"]
                self.send_response(collector.status)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def named(self, name: str) -> list[dict[str, Any]]:
        return [span for span in self.spans if span["name"] == name]

    def end(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.end()


def attributes(span: dict[str, Any]) -> dict[str, str]:
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


def start(folder: Path, url: str) -> Home:
    home = Home(folder)
    home.environment["OTEL_EXPORTER_OTLP_HEADERS"] = "x-key=secret"
    started = home.oxiray("start", "--head", f"--port={home.port}", "--num-cpus=2", f"--otlp={url}")
    assert started.returncode == 0, started.stderr
    return home


@contextlib.contextmanager
def working(home: Home) -> Iterator[None]:
    """A driver that has done its work, and stays until the end of the block: workers tell of their calls while they live."""
    command, pipe = [sys.executable, "-c", f"{PREAMBLE}{WORK}\nprint('done', flush=True)\ninput()\n"], subprocess.PIPE
    with subprocess.Popen(command, env=home.environment, stdin=pipe, stdout=pipe, text=True) as run:
        assert run.stdin is not None and run.stdout is not None and run.stdout.readline() == "done\n"
        yield
        run.stdin.close()
        run.wait(60)


def test_each_call_is_a_span_below_its_caller(collector: Collector, tmp_path: Path) -> None:
    home = start(tmp_path, collector.url)
    try:
        names = ("inner", "outer", "Counter.__init__", "Counter.add", "breaks")
        with working(home):
            wait_until(lambda: all(len(collector.named(name)) == 1 for name in names), LIMIT_S)
        assert set(collector.asked) == {("/v1/traces", "secret")}
        [inner], [outer], [breaks] = map(collector.named, ("inner", "outer", "breaks"))
        assert inner["parentSpanId"] == outer["spanId"] and outer["parentSpanId"] == ""
        assert len({collector.named(name)[0]["traceId"] for name in names}) == 1, "a job is a trace"
        assert int(outer["startTimeUnixNano"]) <= int(inner["startTimeUnixNano"]) <= int(inner["endTimeUnixNano"])
        assert breaks["status"]["code"] == 2 and "on purpose" in breaks["status"]["message"]
        told = attributes(inner)
        assert told["oxiray.state"] == "FINISHED" and len(told["ray.node_id"]) == 56 and int(told["ray.pid"]) > 0
        runs = [span for span in collector.named("run") if span["parentSpanId"] == inner["spanId"]]
        assert len(runs) == 1 and runs[0]["endTimeUnixNano"] == inner["endTimeUnixNano"]
        assert attributes(collector.named("Counter.add")[0])["ray.actor_id"] == attributes(collector.named("Counter.__init__")[0])["ray.actor_id"]
    finally:
        home.oxiray("stop", "--force")


def test_a_collector_that_is_busy_gets_them_later_and_each_once(collector: Collector, tmp_path: Path) -> None:
    collector.status = 503
    home = start(tmp_path, collector.url)
    try:
        wait_until(lambda: list(tmp_path.rglob("spans.log")))
        (log,) = tmp_path.rglob("spans.log")
        with working(home):
            wait_until(lambda: "spans cannot be sent: it answers 503" in log.read_text(), LIMIT_S)
            collector.status = 200
            wait_until(lambda: "spans are sent again" in log.read_text() and collector.named("breaks"), LIMIT_S)
        with working(home):
            wait_until(lambda: len(collector.named("breaks")) == 2, LIMIT_S)
        assert len({span["spanId"] for span in collector.spans}) == len(collector.spans), "none is sent twice"
        assert len({span["traceId"] for span in collector.spans}) == 2
    finally:
        home.oxiray("stop", "--force")


def test_a_node_that_joins_sends_none(tmp_path: Path) -> None:
    refused = Home(tmp_path).oxiray("start", "--address=127.0.0.1:1", "--otlp=http://127.0.0.1:4318")
    assert refused.returncode != 0 and "--otlp is of use with --head only" in refused.stderr


@pytest.mark.parametrize("url", ["https://127.0.0.1:4318", "127.0.0.1:4318", "http://", "http://:4318"])
def test_a_url_that_is_none_of_a_collector_is_refused(tmp_path: Path, url: str) -> None:
    refused = Home(tmp_path).oxiray("start", "--head", "--num-cpus=1", f"--otlp={url}")
    assert refused.returncode != 0 and f"--otlp={url} is no collector" in refused.stderr
