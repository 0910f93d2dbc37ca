"""Stacks and profiles of processes over HTTP, for the page and as Ray's paths name them."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
from dashboard_client import TOKEN, Dashboard, Told
from watching import wait_until

pytestmark = pytest.mark.timeout(300)

#: The line of the program that keeps most of its memory.
KEEPS = "kept = bytes(50_000_000)"
PROGRAM = """
import sys
import time
import ray

ray.init(address="auto", log_to_driver=False)

def count_up():
    number = 0
    while True:
        number += 1

@ray.remote(num_cpus=0)
def busy():
    count_up()

@ray.remote(num_cpus=0)
def hoard():
    while True:
        kept = bytes(50_000_000)
        time.sleep(0.05)

@ray.remote(num_cpus=0)
def soon_over():
    return ray.get_runtime_context().get_task_id()

@ray.remote(num_cpus=1000)
def never():
    pass

@ray.remote(num_cpus=0)
class Idle:
    def ready(self):
        return ray.get_runtime_context().get_task_id()

idle = Idle.remote()
ray.get(idle.ready.remote())
tasks = [busy.remote(), hoard.remote(), never.remote()]
print(ray.get(soon_over.remote()), idle._actor_id.hex(), *(task.task_id().hex() for task in tasks), flush=True)
sys.stdin.read()
"""


class Profiled:
    """A program with a process that computes, one that allocates and one that waits."""

    def __init__(self, dashboard: Dashboard, program: subprocess.Popen[str]) -> None:
        assert program.stdout is not None
        self.dashboard = dashboard
        self.over, self.actor, self.busy, self.hoard, self.never = program.stdout.readline().split()
        [node] = self.rows("nodes")
        self.node, self.ip = node["node_id"], node["node_ip"]
        wait_until(lambda: all(self.worker(task) for task in (self.busy, self.hoard)))
        worker = self.worker(self.busy)
        self.pid = next(row["pid"] for row in self.rows("workers") if row["worker_id"] == worker)

    def rows(self, kind: str) -> list[dict[str, Any]]:
        told = self.dashboard.ask("GET", f"/api/v0/{kind}?limit=1000&detail=True").text
        return list(json.loads(told)["data"]["result"]["result"])

    def worker(self, task: str) -> str | None:
        """The process that runs a task, once one does."""
        running = (row for row in self.rows("tasks") if row["task_id"] == task and row["state"] == "RUNNING")
        return next((row["worker_id"] for row in running), None)

    def ask(self, path: str, token: str = TOKEN, **query: object) -> Told:
        return self.dashboard.ask("GET", f"{path}?{urllib.parse.urlencode(query)}", token=token)

    def page(self, path: str, **query: object) -> dict[str, Any]:
        told = self.ask(f"/ox/v1/{path}", **query)
        assert told.status == 200, told.text
        return dict(json.loads(told.text))


@pytest.fixture(scope="module")
def profiled(dashboard: Dashboard, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Profiled]:
    # Memory is told by lines of source, which a file has.
    file = tmp_path_factory.mktemp("profiled") / "program.py"
    file.write_text(PROGRAM)
    with subprocess.Popen(
        [sys.executable, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dashboard.home.environment
    ) as program:
        yield Profiled(dashboard, program)
        assert program.stdin is not None
        program.stdin.close()


def weight_of(told: dict[str, Any], function: str) -> int:
    """What the stacks weigh in which this function was called."""
    stacks = [stack for process in told["processes"] for stack in process["stacks"]]
    return sum(one["weight"] for one in stacks if any(frame["function"] == function for frame in one["frames"]))


def test_a_busy_process_is_seen_in_its_function(profiled: Profiled) -> None:
    for named in ({"task_id": profiled.busy}, {"worker_id": profiled.worker(profiled.busy)}):
        told = profiled.page("profile", **named, seconds=2, rate=200)
        [process] = told["processes"]
        assert (told["unit"], process["pid"], process["ip"]) == ("us", profiled.pid, profiled.ip)
        assert told["title"] == "CPU time over 2 s, 200 samples a second"
        assert weight_of(told, "count_up") > told["total"] / 2 > 0
        assert sum(stack["weight"] for stack in process["stacks"]) == told["total"]


def test_a_process_that_waits_is_seen_by_the_clock(profiled: Profiled) -> None:
    told = profiled.page("profile", actor_id=profiled.actor, kind="wall", seconds=2)
    assert told["total"] > 0 and told["title"].startswith("Wall-clock time")


def test_memory_is_told_by_the_line_that_keeps_it(profiled: Profiled) -> None:
    told = profiled.page("profile", task_id=profiled.hoard, kind="memory", seconds=3)
    assert told["unit"] == "bytes" and told["total"] >= 50_000_000
    [heaviest, *_] = told["processes"][0]["stacks"]
    line = PROGRAM.splitlines().index(f"        {KEEPS}") + 1
    assert heaviest["weight"] >= 50_000_000
    assert (heaviest["frames"][0]["function"], heaviest["frames"][0]["line"]) == (KEEPS, line)
    table = profiled.ask("/memory_profile", task_id=profiled.hoard, node_id=profiled.node, format="table", duration=3)
    assert table.status == 200 and "47.7 MiB" in table.text and f"{KEEPS} (" in table.text


def test_stacks_are_told_for_the_page_and_as_text(profiled: Profiled) -> None:
    [process] = profiled.page("stacks", task_id=profiled.busy)["processes"]
    assert process["pid"] == profiled.pid
    assert any(frame["function"] == "count_up" for stack in process["stacks"] for frame in stack["frames"])
    by_pid = {"pid": profiled.pid, "native": 0}
    for path, query in (
        ("/worker/traceback", {**by_pid, "ip": profiled.ip}),
        ("/worker/traceback", {**by_pid, "node_id": profiled.node}),
        ("/task/traceback", {"task_id": profiled.busy, "attempt_number": 0, "node_id": profiled.node}),
    ):
        told = profiled.ask(path, **query)
        assert told.status == 200 and told.fields["content-type"] == "text/plain; charset=utf-8"
        assert f"Process {profiled.pid} on {profiled.ip}: busy" in told.text and 'Thread "MainThread"' in told.text
        assert "    count_up (" in told.text


def test_rays_formats_are_written(profiled: Profiled) -> None:
    by_pid = {"pid": profiled.pid, "ip": profiled.ip, "duration": 2, "native": 0}
    drawn = profiled.ask("/worker/cpu_profile", **by_pid)
    assert drawn.status == 200 and drawn.fields["content-type"].startswith("image/svg+xml")
    assert drawn.text.startswith("<svg") and "count_up" in drawn.text
    raw = profiled.ask("/task/cpu_profile", task_id=profiled.busy, duration=2, format="raw").text
    assert "count_up" in raw and all(line.rpartition(" ")[2].isdigit() for line in raw.splitlines())
    told = json.loads(profiled.ask("/worker/cpu_profile", **by_pid, format="speedscope", idle=1).text)
    assert told["$schema"] == "https://www.speedscope.app/file-format-schema.json" and told["name"].startswith("Wall-clock")
    assert profiled.ask("/memory_profile", task_id=profiled.hoard, duration=2, leaks=1).text.startswith("<svg")


def test_a_profile_that_was_taken_is_written_in_other_formats(profiled: Profiled) -> None:
    told = profiled.page("profile", task_id=profiled.busy, seconds=2)
    drawn = profiled.ask("/ox/v1/profile", taken=told["taken"], format="svg")
    assert drawn.status == 200 and "count_up" in drawn.text
    speedscope = profiled.page("profile", taken=told["taken"], format="speedscope")
    assert sum(one["endValue"] for one in speedscope["profiles"]) == told["total"]
    assert profiled.page("profile", taken=told["taken"]) == told
    assert profiled.ask("/ox/v1/profile", taken=1_000_000, format="svg").status == 404
    assert profiled.ask("/ox/v1/profile", taken=told["taken"], seconds=1).status == 400


def test_profiling_is_on_and_has_rays_shape(profiled: Profiled) -> None:
    told = json.loads(profiled.ask("/api/profiling_enabled").text)
    assert told["result"] is True and told["data"]["profilingEnabled"] is True
    assert told["data"]["profilingDefaults"]["maxDuration"] == 60


@pytest.mark.parametrize(
    ("path", "query", "status", "said"),
    [
        ("/ox/v1/profile", "", 400, "name one process"),
        ("/ox/v1/profile", "worker_id=zz", 400, "worker_id=zz is no identifier"),
        ("/ox/v1/profile", "worker_id=" + "ab" * 28, 404, "it has ended, or there was none"),
        ("/ox/v1/profile", "pid=1&ip=a&kind=gpu", 400, "kind=gpu is none of cpu, wall, memory"),
        ("/ox/v1/profile", "pid=1&ip=a&seconds=61", 400, "at most 60 s"),
        ("/ox/v1/profile", "pid=1&ip=a&rate=0", 400, "rate=0: "),
        ("/ox/v1/profile", "pid=1&ip=a&format=png", 400, "format=png is none of json"),
        ("/ox/v1/stacks", "pid=1", 400, "without node_id or ip"),
        ("/worker/traceback", "pid=x&ip=a", 400, "pid=x is no process id"),
        ("/worker/traceback", "pid=1&ip=10.254.254.254", 404, "oxiray list workers"),
        ("/worker/traceback", "pid=1&ip=a&native=1", 400, "py-spy"),
        ("/worker/cpu_profile", "pid=1&ip=a&duration=61", 400, "duration=61: "),
        ("/worker/cpu_profile", "pid=1&ip=a&duration=;id", 400, "is no number of seconds"),
        ("/worker/cpu_profile", "pid=1&ip=a&format=html", 400, "flamegraph, raw, speedscope"),
        ("/worker/cpu_profile", "pid=1&ip=a&native=1", 400, "leave it out"),
        ("/task/cpu_profile", "task_id=1", 400, "task_id=1 is no identifier"),
        ("/memory_profile", "pid=1&ip=a&native=1", 400, "leave it out"),
        ("/memory_profile", "pid=1&ip=a&format=raw", 400, "flamegraph, table"),
        ("/worker/gpu_profile", "pid=1", 404, "torch.profiler"),
        ("/worker/jax_profile", "pid=1", 404, "jax.profiler"),
    ],
)
def test_what_is_wrong_is_told(profiled: Profiled, path: str, query: str, status: int, said: str) -> None:
    told = profiled.dashboard.ask("GET", f"{path}?{query}")
    assert told.status == status and said in told.text, told.text


def test_a_task_without_a_process_is_told_of(profiled: Profiled) -> None:
    for task, says in ((profiled.over, "has finished"), (profiled.never, "waits to run"), ("ab" * 24, "is not known")):
        wait_until(lambda task=task, says=says: says in profiled.ask("/task/traceback", task_id=task).text)
        told = profiled.ask("/ox/v1/profile", task_id=task)
        assert told.status == 404 and says in told.text
    elsewhere = profiled.ask("/task/traceback", task_id=profiled.busy, node_id="ab" * 28)
    assert elsewhere.status == 404 and "another node" in elsewhere.text


def test_a_token_that_reads_sees_no_stack(profiled: Profiled) -> None:
    token = (profiled.dashboard.session / "http-token-read").read_text().strip()
    for path in ("/ox/v1/profile", "/ox/v1/stacks", "/worker/traceback", "/task/traceback", "/worker/cpu_profile",
                 "/task/cpu_profile", "/memory_profile"):  # fmt: skip
        told = profiled.ask(path, token, pid=profiled.pid, ip=profiled.ip)
        assert told.status == 403 and "only reads" in told.text
    assert profiled.dashboard.ask("GET", "/api/v0/stacks").status == 404, "it is no list of Ray's, which that token may read"
    assert json.loads(profiled.ask("/api/profiling_enabled", token).text)["data"]["profilingEnabled"] is False


def test_few_profiles_are_taken_at_once(profiled: Profiled) -> None:
    processes = [row["worker_id"] for row in profiled.rows("workers") if row["is_alive"]]
    assert len(processes) >= 4
    taking = []
    for worker in processes[:4]:
        connection = profiled.dashboard.connect()
        query = urllib.parse.urlencode({"worker_id": worker, "kind": "wall", "seconds": 30})
        lines = [f"GET /ox/v1/profile?{query} HTTP/1.1", f"Host: 127.0.0.1:{profiled.dashboard.port}",
                 f"Authorization: Bearer {TOKEN}", "Connection: close", "", ""]  # fmt: skip
        connection.sendall("\r\n".join(lines).encode())
        taking.append(connection)
    asked = {"worker_id": processes[0], "seconds": 0.1}
    wait_until(lambda: profiled.ask("/ox/v1/profile", **asked).status == 429)
    # Who goes away leaves a place.
    for connection in taking:
        connection.close()
    wait_until(lambda: profiled.ask("/ox/v1/profile", **asked).status == 200)
