"""Ray's lists of the cluster's state over HTTP, of a cluster that works: keys as a live Ray 2.60 had them, and filters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard_client import TOKEN, Dashboard
from watching import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDED = ROOT / "tests/fixtures/ray_http"
#: Ray's own command line, made by `make bench`.
RAY = ROOT / ".build/ray/bin/ray"

PROGRAM = """
import sys
import ray

ray.init(address="auto", namespace="n")

@ray.remote(num_cpus=0)
class A:
    def pid(self):
        return 1

@ray.remote
def f(x):
    return x

@ray.remote(num_cpus=1000)
def never():
    pass

actor = A.options(name="named", lifetime="detached").remote()
ray.get(actor.pid.remote())
group = ray.util.placement_group([{"CPU": 0.1}], name="pg1", lifetime="detached")
ray.get(group.ready())
ray.get([f.remote(i) for i in range(3)])
waits = never.remote()
kept = ray.put(b"x" * 1000)
print("ready", flush=True)
sys.stdin.read()
"""


class Served:
    """A head that answers over HTTP, and a program at work on it."""

    def __init__(self, dashboard: Dashboard) -> None:
        self.dashboard = dashboard

    def get(self, path: str) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        told = self.dashboard.ask("GET", path)
        return told.status, json.loads(told.body)

    def rows(self, kind: str, detail: bool = True, **filters: str) -> list[dict[str, Any]]:
        query = [("limit", "100"), ("detail", str(detail)), ("timeout", "30")]
        for key, value in filters.items():
            query += [("filter_keys", key), ("filter_predicates", "="), ("filter_values", value)]
        status, told = self.get(f"/api/v0/{kind}?{urllib.parse.urlencode(query)}")
        assert status == 200 and told["result"] is True, told
        assert list(told["data"]["result"]) == [
            "total", "num_after_truncation", "num_filtered", "result", "partial_failure_warning", "warnings",
        ]  # fmt: skip
        return told["data"]["result"]["result"]


@pytest.fixture(scope="module")
def served(dashboard: Dashboard) -> Iterator[Served]:
    line = [sys.executable, "-c", PROGRAM]
    environment = dashboard.home.environment
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as program:
        assert program.stdin is not None and program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        yield Served(dashboard)
        program.stdin.close()


def recorded(kind: str) -> list[str]:
    """The keys of a row of Ray's, in their order."""
    return list(json.loads((RECORDED / f"v0_{kind}.body").read_text())["data"]["result"]["result"][0])


@pytest.mark.parametrize("kind", ["actors", "jobs", "nodes", "objects", "placement_groups", "tasks", "workers"])
def test_rows_have_rays_keys_in_rays_order(served: Served, kind: str) -> None:
    wait_until(lambda: served.rows(kind))
    for row in served.rows(kind):
        assert list(row) == recorded(kind)


def test_values_are_what_the_cluster_does(served: Served) -> None:
    wait_until(lambda: [row["state"] for row in served.rows("tasks", name="f")] == ["FINISHED"] * 3)
    [waits] = served.rows("tasks", name="never")
    assert (waits["state"], waits["required_resources"]) == ("PENDING_NODE_ASSIGNMENT", {"CPU": 1000.0})
    assert isinstance(waits["events"][0]["created_ms"], float)
    [actor] = served.rows("actors", name="named")
    assert (actor["class_name"], actor["state"], actor["num_restarts"]) == ("A", "ALIVE", "0")
    [node] = served.rows("nodes")
    assert node["is_head_node"] is True and node["resources_total"]["CPU"] == 2.0 and node["end_time_ms"] == 0
    [group] = served.rows("placement_groups", name="pg1")
    assert group["bundles"][0]["bundle_id"]["bundle_index"] == 0 and group["bundles"][0]["node_id"] == node["node_id"]
    assert {row["worker_type"] for row in served.rows("workers", is_alive="True")} == {"DRIVER", "WORKER"}
    assert served.rows("tasks", state="failed") == []
    assert list(served.rows("actors", detail=False)[0]) == recorded("actors")[:8]


def test_an_identifier_is_a_filter(served: Served) -> None:
    [node] = served.rows("nodes", detail=False)
    assert served.rows("nodes", node_id=node["node_id"])[0]["node_id"] == node["node_id"]
    assert served.rows("nodes", node_id="ab" * 28) == []


def test_what_is_wrong_is_told_as_ray_does(served: Served) -> None:
    wrong = "filter_keys=colour&filter_predicates=%3D&filter_values=x"
    for query, said in (("limit=20000", "exceeds the supported limit 10000"), (wrong, "The given filter column colour is not supported")):
        status, told = served.get(f"/api/v0/tasks?{query}")
        assert (status, told["result"], told["data"]) == (400, False, {"result": None}) and said in told["msg"]


def test_events_of_the_cluster_have_rays_columns(served: Served) -> None:
    wait_until(lambda: served.rows("cluster_events", source_type="JOBS"))
    events = served.rows("cluster_events")
    assert {tuple(row) for row in events} == {tuple(recorded("cluster_events"))}
    assert events[0]["custom_fields"]["event"] == "head_started"
    assert list(served.rows("cluster_events", detail=False)[0]) == recorded("cluster_events")[:5]
    status, told = served.get("/api/v0/cluster_events?limit=1")
    assert (status, told["data"]["result"]["total"], len(told["data"]["result"]["result"])) == (200, len(events), 1)
    status, told = served.get("/api/v0/cluster_events?filter_keys=colour&filter_predicates=%3D&filter_values=x")
    assert status == 400 and "The given filter column colour is not supported" in told["msg"]


def test_summaries_count_by_name(served: Served) -> None:
    def counted(kind: str) -> dict[str, Any]:
        status, told = served.get(f"/api/v0/{kind}/summarize")
        assert status == 200, told
        return told["data"]["result"]["result"]["node_id_to_summary"]["cluster"]

    wait_until(lambda: counted("tasks")["summary"].get("f", {}).get("state_counts") == {"FINISHED": 3})
    assert counted("tasks")["summary_by"] == "func_name"
    assert counted("actors")["summary"]["A"] == {"class_name": "A", "state_counts": {"ALIVE": 1}}
    assert counted("objects")["total_objects"] >= 1
    assert served.get("/api/v0/tasks/summarize?summary_by=lineage")[0] == 400


def test_nodes_show_what_they_measure(served: Served) -> None:
    def summary() -> dict[str, Any]:
        status, told = served.get("/nodes?view=summary")
        assert status == 200, told
        return told["data"]["summary"][0]

    def actor() -> dict[str, Any]:
        [found] = served.get("/logical/actors")[1]["data"]["actors"].values()
        return dict(found)

    # A process that began after a measuring is in the next one.
    wait_until(lambda: "mem" in summary() and actor()["processStats"])
    node = summary()
    total, available, percent, used = node["mem"]
    assert total == available + used and 0 < percent < 100
    assert node["raylet"]["state"] == "ALIVE" and node["raylet"]["isHeadNode"] is True
    assert any(worker["memoryInfo"]["rss"] > 1 << 20 for worker in node["workers"])
    assert os.uname().nodename in served.get("/nodes?view=hostNameList")[1]["data"]["hostNameList"]
    status, detail = served.get(f"/nodes/{node['raylet']['nodeId']}")
    assert status == 200 and any(actor["name"] == "named" for actor in detail["data"]["detail"]["actors"].values())
    assert served.get("/nodes/ab")[0] == 404
    assert actor()["processStats"]["pid"] == actor()["pid"]


def test_the_clusters_status_is_told(served: Served) -> None:
    def report() -> str:
        status, told = served.get("/api/cluster_status?format=1")
        assert status == 200, told
        return str(told["data"]["clusterStatus"])

    assert report().startswith("======== Autoscaler status: ")
    wait_until(lambda: "{'CPU': 1000.0}: 1+ pending tasks/actors" in report())
    cluster = served.get("/api/cluster_status")[1]["data"]["clusterStatus"]
    assert cluster["loadMetricsReport"]["usage"]["CPU"][1] == 2.0 and sum(cluster["autoscalerReport"]["activeNodes"].values()) == 1


def test_what_ran_when_is_told(served: Served) -> None:
    wait_until(lambda: len(served.rows("tasks", name="f")) == 3)
    status, events = served.get("/api/v0/tasks/timeline?download=1")
    assert status == 200
    ran = [event for event in events if event["ph"] == "X" and event["name"] == "f"]
    assert len(ran) == 3 and all(event["dur"] >= 0 for event in ran)
    assert {event["name"] for event in events if event["ph"] == "M"} == {"process_name", "thread_name"}


@pytest.mark.skipif(not RAY.exists(), reason="Ray's own command line is not there: `make bench` makes it")
def test_rays_own_command_line_reads_it(served: Served) -> None:
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}

    def command(*words: str) -> str:
        line = [str(RAY), *words, "--address", served.dashboard.url]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done
        return done.stdout

    [actor] = served.rows("actors", name="named")
    assert "No resource in the cluster" in command("list", "runtime-envs", "--detail")
    for kind in ("tasks", "actors", "nodes", "jobs", "workers", "placement-groups", "objects"):
        assert command("list", kind, "--detail", "--limit", "10").startswith("---")
        assert "Stats:" in command("list", kind)
    assert "named" in command("get", "actors", actor["actor_id"])
    for kind in ("tasks", "actors", "objects"):
        assert "Summary" in command("summary", kind)
    assert command("list", "tasks", "--filter", "name=f").count("FINISHED") == 3
