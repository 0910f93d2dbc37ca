"""What the page changes by hand, and who may: tasks, actors, nodes and devices; who holds CPUs where there are no devices."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from typing import Any

import pytest
from dashboard_client import Dashboard
from homes import PREAMBLE
from watching import wait_until

pytestmark = pytest.mark.timeout(300)

#: An actor with a CPU, a task that ended, one that runs until it is cancelled, and one that waits for the CPU that it has.
PROGRAM = """
@ray.remote(num_cpus=0.5)
def short():
    time.sleep(0.2)

@ray.remote(num_cpus=1)
def long(name):
    time.sleep(3600)

counter = Counter.options(name="counter", num_cpus=0.5).remote(0)
ray.get(counter.next.remote())
ray.get(short.remote())
made = [long.options(name=name).remote(name) for name in ("runs", "waits")]
for ref in made:
    try:
        ray.get(ref)
    except ray.exceptions.TaskCancelledError:
        print("cancelled", flush=True)
try:
    while True:
        ray.get(counter.next.remote())
        time.sleep(0.05)
except ray.exceptions.ActorDiedError as error:
    print("killed" if "page" in str(error) else error, flush=True)
"""
JSON = "Content-Type: application/json"


def rows(dashboard: Dashboard, path: str) -> list[dict[str, Any]]:
    told = dashboard.ask("GET", f"/ox/v1/rows/{path}")
    assert told.status == 200, told.text
    return list(json.loads(told.body)["rows"])


def post(dashboard: Dashboard, path: str, body: object = None, *fields: str, token: str | None = None) -> tuple[int, str]:
    asked = json.dumps(body or {}).encode()
    given = {"token": token} if token else {}
    told = dashboard.ask("POST", f"/ox/v1/{path}", JSON, *fields, body=asked, **given)
    return told.status, told.text


def held(dashboard: Dashboard) -> dict[str, list[Any]]:
    """The bars of the head's node by their names."""
    told = json.loads(dashboard.ask("GET", "/ox/v1/holdings").body)
    assert told["unit"] == "CPU"
    # Before the page's server has heard of a node there is none.
    if not told["nodes"]:
        return {}
    (device,) = told["nodes"][0]["devices"]
    assert device["cores"] == 2
    return {told["names"][bar[5]]: bar for bar in device["bars"]}


def test_who_holds_cpus_is_seen_and_ended_by_hand(dashboard: Dashboard) -> None:
    with subprocess.Popen([sys.executable, "-c", PREAMBLE + PROGRAM], env=dashboard.home.environment, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        wait_until(lambda: {"Counter", "short", "runs"} <= held(dashboard).keys() and [row for row in rows(dashboard, "tasks") if row["name"] == "waits"])
        bars = held(dashboard)
        assert bars["Counter"][1] is None and bars["Counter"][3] == 0.25 and bars["Counter"][7].startswith("actor:")
        assert bars["runs"][1] is None and bars["runs"][3] == 0.5 and bars["runs"][7].startswith("task:")
        assert 150 <= bars["short"][1] - bars["short"][0] <= 5_000, "it is known exactly when it ran"
        lasting = sorted((bar[2], bar[2] + bar[3]) for bar in (bars["Counter"], bars["runs"]))
        assert lasting[0][1] <= lasting[1][0], "they lie above each other"
        assert "waits" not in bars
        table = {row["name"]: row for row in rows(dashboard, "grants")}
        assert table["runs"]["amount"] == 1 and table["runs"]["to_ms"] is None and table["runs"]["key"] == bars["runs"][7]
        assert rows(dashboard, f"grants?to={bars['short'][0] - 1}&search=short") == []

        tasks = {row["name"]: row for row in rows(dashboard, "tasks")}
        (actor,) = rows(dashboard, "actors")
        for path in (f"tasks/{tasks['runs']['task_id']}/cancel", f"actors/{actor['key']}/kill"):
            assert dashboard.ask("POST", f"/ox/v1/{path}", body=b"{}").status == 415, "no page of another site can send that by itself"
            assert post(dashboard, path, None, "Origin: http://evil.com")[0] == 403
            assert post(dashboard, path, None, "Sec-Fetch-Site: cross-site")[0] == 403
            assert post(dashboard, path, token="a-wrong-token-of-nobody-0123456789")[0] == 403
            reading = (dashboard.session / "http-token-read").read_text().strip()
            assert post(dashboard, path, token=reading)[0] == 403
        assert post(dashboard, "tasks/zz/cancel") == (400, "zz is no task's identifier")
        assert post(dashboard, f"actors/{'0' * 32}/kill")[0] == 409
        for name in ("waits", "runs"):
            assert post(dashboard, f"tasks/{tasks[name]['task_id']}/cancel")[0] == 200
        assert [program.stdout.readline() for _ in range(2)] == ["cancelled\n"] * 2
        assert post(dashboard, f"actors/{actor['key']}/kill")[0] == 200
        assert program.stdout.readline() == "killed\n"
        assert program.wait(60) == 0
    wait_until(lambda: held(dashboard)["Counter"][1] is not None)
    audit = [json.loads(line) for line in (dashboard.session / "logs" / "audit.jsonl").read_text().splitlines()]
    done = [(line["act"], line["subject"]) for line in audit if line["result"] == "done"]
    assert ("cancel_task", tasks["runs"]["task_id"]) in done and ("kill_actor", actor["key"]) in done


def test_nodes_are_drained_and_kept_by_hand(dashboard: Dashboard) -> None:
    address = json.loads((dashboard.session / "session.json").read_text())["address"]
    joined = dashboard.home.oxiray("start", f"--address={address}", "--num-cpus=1")
    assert joined.returncode == 0, joined.stderr
    wait_until(lambda: len(rows(dashboard, "nodes?state=ALIVE")) == 2)
    head, member = sorted(rows(dashboard, "nodes"), key=lambda row: not row["head"])
    assert post(dashboard, f"nodes/{member['key']}/drain", {"seconds": "soon"})[0] == 400
    status, said = post(dashboard, f"nodes/{head['key']}/drain")
    assert status == 409 and "head" in said
    holds = subprocess.Popen([sys.executable, "-c", PREAMBLE + f"""
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as Affinity
counter = Counter.options(scheduling_strategy=Affinity({member['key']!r}, soft=False)).remote(0)
ray.get(counter.next.remote())
print("there", flush=True)
sys.stdin.read()
"""], env=dashboard.home.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
    try:
        assert holds.stdout is not None and holds.stdout.readline() == "there\n"
        status, said = post(dashboard, f"nodes/{member['key']}/drain", {"seconds": 3600})
        assert status == 200 and json.loads(said)["left"]["actors"] == 1
        is_draining = lambda: [row for row in rows(dashboard, "nodes") if row["state"] == "DRAINING"]  # noqa: E731
        wait_until(is_draining)
        (row,) = is_draining()
        assert row["key"] == member["key"] and 0 < row["drain_deadline_ms"] - row["started_ms"] < 2 * 3_600_000
        assert post(dashboard, f"nodes/{member['key']}/keep")[0] == 200
        wait_until(lambda: len(rows(dashboard, "nodes?state=ALIVE")) == 2)
        wait_until(lambda: all(row["clock_ms"] is not None for row in rows(dashboard, "nodes")), 90)
        assert all(abs(row["clock_ms"]) < 7_000 for row in rows(dashboard, "nodes")), "they are on one machine"
    finally:
        holds.communicate()
    assert post(dashboard, f"devices/{head['key']}/GPU/0/drain")[0] == 409
    assert post(dashboard, f"nodes/{member['key']}/drain")[0] == 200
    wait_until(lambda: len(rows(dashboard, "nodes?state=ALIVE")) == 1)


def test_the_page_itself_is_compressed_for_who_understands(dashboard: Dashboard) -> None:
    plain = dashboard.ask("GET", "/static/main.js", token=None)
    packed = dashboard.ask("GET", "/static/main.js", "Accept-Encoding: gzip, deflate", token=None)
    assert "content-encoding" not in plain.fields and packed.fields["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body and len(packed.body) < len(plain.body) / 2
    assert plain.fields["vary"] == packed.fields["vary"] == "accept-encoding"
