"""Calls as spans of OpenTelemetry: `ray.init(_tracing_startup_hook=...)` and `ray.util.tracing`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import ray

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed: `make test` does it")

HOOK = """
import json, os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

class Lines(SpanExporter):
    def export(self, spans):
        with open(os.path.join(os.environ["SPANS"], f"{os.getpid()}.txt"), "a") as file:
            for span in spans:
                parent = span.parent.span_id if span.parent else None
                file.write(json.dumps({
                    "name": span.name, "kind": span.kind.name, "trace": span.context.trace_id, "span": span.context.span_id,
                    "parent": parent, "attributes": dict(span.attributes), "status": span.status.status_code.name,
                    "pid": os.getpid(), "took": span.end_time - span.start_time}) + "\\n")
        return SpanExportResult.SUCCESS

def install():
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Lines()))
    trace.set_tracer_provider(provider)

def fails():
    if os.environ.get("FAILS_HERE") != "not":
        raise RuntimeError("no collector")
"""
PROGRAM = """
import asyncio, os, sys, time
import ray
from opentelemetry import trace

ray.init(num_cpus=2, _tracing_startup_hook="hook:install", logging_level="ERROR")

def own(name):
    return trace.get_tracer("own").start_as_current_span(name)

@ray.remote
def inner(a, b=2):
    with own("own work"):
        return a + b

@ray.remote
def outer():
    return ray.get(inner.remote(1, b=3))

@ray.remote
def fails():
    raise KeyError("away")

@ray.remote
def count(n):
    for number in range(n):
        with own(f"item {number}"):
            yield number

@ray.remote(num_returns="dynamic")
def dynamic():
    yield 1

@ray.remote
class Counter:
    def __init__(self, start):
        self.value = start
        with own("own making"):
            pass

    @ray.method(num_returns=2)
    def two(self):
        return self.value, self.value

    def steps(self):
        yield from range(2)

    def nested(self):
        return ray.get(inner.remote(self.value))

@ray.remote
class Async:
    async def wait(self, seconds):
        await asyncio.sleep(seconds)
        with own("own waking"):
            return seconds

with own("the program"):
    assert ray.get(outer.remote()) == 4
    counter = Counter.remote(7)
    assert ray.get(counter.two.remote()) == [7, 7] and ray.get(counter.nested.remote()) == 9
    assert [ray.get(one) for one in counter.steps.remote()] == [0, 1]
    assert [ray.get(one) for one in count.remote(2)] == [0, 1]
    assert [ray.get(one) for one in ray.get(dynamic.remote())] == [1]
    assert ray.get([Async.remote().wait.remote(0.2)]) == [0.2]
    ray.get(counter.__ray_ready__.remote())
try:
    ray.get(fails.options(max_retries=0).remote())
except ray.exceptions.RayTaskError as error:
    assert isinstance(error.cause, KeyError)
try:
    inner.remote(1, 2, 3)
except TypeError as error:
    assert "too many positional arguments" in str(error), error
ray.shutdown()
"""


def ran(tmp_path: Path, program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "hook.py").write_text(HOOK)
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    spans = tmp_path / "spans"
    spans.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env={**os.environ, "SPANS": str(spans), **variables},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def spans(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("traced")
    done = ran(folder, PROGRAM)
    assert done.returncode == 0, done.stderr
    files = sorted((folder / "spans").iterdir())
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def only(spans: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = [span for span in spans if span["name"] == name]
    return found


def above(spans: list[dict[str, Any]], span: dict[str, Any]) -> list[str]:
    """The names of the spans that it lies in, innermost first."""
    by_id = {one["span"]: one for one in spans}
    names = []
    while (span := by_id.get(span["parent"])) is not None:  # type: ignore[assignment]
        names.append(span["name"])
    return names


def test_a_call_runs_in_a_span_below_the_one_that_makes_it(spans: list[dict[str, Any]]) -> None:
    own = [span for span in spans if span["name"] == "own work"]
    paths = sorted(above(spans, span) for span in own)
    inner = ["__main__.inner ray.remote_worker", "__main__.inner ray.remote"]
    assert paths == [
        [*inner, "Counter.nested ray.remote_worker", "Counter.nested ray.remote", "the program"],
        [*inner, "__main__.outer ray.remote_worker", "__main__.outer ray.remote", "the program"],
    ]
    assert len({span["trace"] for span in own}) == 1
    made, runs = only(spans, "__main__.outer ray.remote"), only(spans, "__main__.outer ray.remote_worker")
    assert (made["kind"], runs["kind"]) == ("PRODUCER", "CONSUMER") and made["pid"] != runs["pid"]


def test_what_is_made_and_iterated_and_awaited_lies_in_its_span(spans: list[dict[str, Any]]) -> None:
    for name, inside in (
        ("own making", "Counter.__init__"), ("item 0", "__main__.count"), ("item 1", "__main__.count"), ("own waking", "Async.wait"),
    ):  # fmt: skip
        assert above(spans, only(spans, name)) == [f"{inside} ray.remote_worker", f"{inside} ray.remote", "the program"], name
    assert only(spans, "Async.wait ray.remote_worker")["took"] >= 0.2e9
    for name in ("Counter.two", "Counter.steps", "__main__.dynamic"):
        assert above(spans, only(spans, f"{name} ray.remote_worker")) == [f"{name} ray.remote", "the program"]
    counts: dict[str, int] = defaultdict(int)
    for span in spans:
        counts[span["name"]] += 1
    assert not [name for name in counts if "__ray_ready__" in name]


def test_spans_say_whose_they_are_and_what_failed(spans: list[dict[str, Any]]) -> None:
    task = only(spans, "__main__.outer ray.remote_worker")["attributes"]
    assert (task["ray.remote"], task["ray.function"]) == ("function", "__main__.outer")
    assert {"ray.pid", "ray.job_id", "ray.node_id", "ray.worker_id", "ray.task_id"} <= set(task)
    method = only(spans, "Counter.two ray.remote_worker")["attributes"]
    assert (method["ray.remote"], method["ray.actor_class"], method["ray.actor_method"]) == ("actor", "Counter", "two")
    assert len(method["ray.actor_id"]) == 32 and method["ray.function"] == "Counter.two"
    failed = only(spans, "__main__.fails ray.remote_worker")
    assert failed["status"] == "ERROR" and failed["parent"] == only(spans, "__main__.fails ray.remote")["span"]


def test_ray_s_own_hook_writes_files(tmp_path: Path) -> None:
    program = """
        import os, ray
        from ray.util.tracing import setup_local_tmp_tracing
        setup_local_tmp_tracing.spans_dir = os.environ["SPANS"]
        ray.init(num_cpus=1, _tracing_startup_hook=setup_local_tmp_tracing.setup_tracing, logging_level="ERROR")
        @ray.remote
        def f():
            return os.getpid()
        ray.get(f.remote())
        """
    done = ran(tmp_path, program)
    assert done.returncode == 0, done.stderr
    names = [json.loads(line)["name"] for file in (tmp_path / "spans").iterdir() for line in file.read_text().splitlines()]
    assert "__main__.f ray.remote" in names


def test_spans_are_not_written_where_others_can_put_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.util.tracing import setup_local_tmp_tracing

    shared, link = tmp_path / "shared", tmp_path / "link"
    shared.mkdir()
    shared.chmod(0o777)
    link.symlink_to(tmp_path, target_is_directory=True)
    for folder in (shared, link):
        monkeypatch.setattr(setup_local_tmp_tracing, "spans_dir", f"{folder}/")
        with pytest.raises(PermissionError, match=f"spans are written into {folder}, which"):
            setup_local_tmp_tracing.setup_tracing()
    assert list(shared.iterdir()) == []


def test_a_hook_that_is_wrong_is_told_of(tmp_path: Path) -> None:
    for hook, kind, says in (
        ("hook", "ValueError", "write it as 'module:function'"),
        ("hook:away", "ValueError", "hook has no attribute 'away'"),
        ("nowhere:install", "ModuleNotFoundError", "nowhere"),
        ("hook:fails", "RuntimeError", "no collector"),
    ):
        done = ran(tmp_path, f"import ray\nray.init(num_cpus=1, _tracing_startup_hook={hook!r})")
        assert done.returncode == 1 and f"{kind}: " in done.stderr.splitlines()[-1] and says in done.stderr, done.stderr
    program = """
        import os, ray
        ray.init(num_cpus=1, _tracing_startup_hook="hook:fails", logging_level="ERROR", runtime_env={"env_vars": {"FAILS_HERE": "yes"}})
        ray.get(ray.remote(lambda: 1).remote(), timeout=60)
        """
    done = ran(tmp_path, program, FAILS_HERE="not")
    assert "RuntimeEnvSetupError" in done.stderr
    assert "the hook _tracing_startup_hook='hook:fails' raised RuntimeError: no collector" in done.stderr


def test_calls_are_not_spans_without_a_hook() -> None:
    from oxiray import _tracing

    ray.init(num_cpus=1)
    try:
        assert ray.get(ray.remote(lambda: 5).remote()) == 5 and not _tracing.is_on
    finally:
        ray.shutdown()
