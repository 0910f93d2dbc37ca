"""Numbers on the page: how many tasks there were of each name and job, how machines and processes are, and which nodes are silent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from dashboard_client import Dashboard, session_of, started
from homes import PREAMBLE, Home
from watching import stopped, wait_until

pytestmark = pytest.mark.timeout(300)

#: More tasks than the head remembers rows of (5,000), of two names; some fail, and one of the last goes on until a file is there.
TASKS = 12_000
PROGRAM = """
@ray.remote(num_cpus=0.5)
def even(number):
    return number
@ray.remote(num_cpus=0.5, max_retries=0)
def odd(number):
    if number % 1000 == 1:
        raise ValueError(number)
@ray.remote(num_cpus=0.1)
def lasts(end):
    while not os.path.exists(end):
        time.sleep(0.05)
counter = Counter.remote(0)
ray.get([counter.next.remote() for _ in range(7)])
kept = lasts.remote(END)
made = [(odd if number % 2 else even).remote(number) for number in range(TASKS)]
ray.wait(made, num_returns=len(made))
open(END + ".told", "w").close()
ray.get(kept)
while not os.path.exists(END + ".left"):
    time.sleep(0.05)
"""


class Page:
    """What a page asks."""

    def __init__(self, dashboard: Dashboard) -> None:
        self.dashboard = dashboard

    def ask(self, path: str) -> dict[str, Any]:
        told = self.dashboard.ask("GET", f"/ox/v1/{path}")
        assert told.status == 200, told.text
        return dict(json.loads(told.body))

    def counts(self, query: str = "") -> dict[str, dict[str, int]]:
        """By name and state."""
        return {row["name"]: row["states"] for row in self.ask(f"names/tasks{query}")["rows"]}


@pytest.fixture(scope="module")
def page(dashboard: Dashboard) -> Page:
    return Page(dashboard)


@contextmanager
def running(page: Page, folder: Path, tasks: int) -> Iterator[Path]:
    """A program of so many tasks that ended, an actor and a task that runs; the file that ends that task. It leaves at the end."""
    end = folder / "end"
    program = PREAMBLE + PROGRAM.replace("END", repr(str(end))).replace("TASKS", str(tasks))
    with subprocess.Popen([sys.executable, "-c", program], env=page.dashboard.home.environment) as run:
        try:
            wait_until(lambda: Path(f"{end}.told").exists() or run.poll() is not None, 120)
            assert run.poll() is None
            yield end
        finally:
            end.touch()
            Path(f"{end}.left").touch()
            assert run.wait(60) == 0


def test_what_ended_is_counted_exactly_and_what_runs_beside_it(page: Page, tmp_path: Path) -> None:
    failed = len(range(1, TASKS, 1_000))
    expected = {
        "even": {"FINISHED": TASKS // 2},
        "odd": {"FINISHED": TASKS // 2 - failed, "FAILED": failed},
        "lasts": {"RUNNING": 1},
        "Counter.next": {"FINISHED": 7},
        "Counter.__init__": {"FINISHED": 1},
    }
    with running(page, tmp_path, TASKS) as end:
        # Lists of all processes' calls are asked for again after a while.
        wait_until(lambda: page.counts() == expected)
        [job] = [row["job_id"] for row in page.ask("rows/jobs")["rows"]]
        assert page.counts(f"?job_id={job}") == expected
        assert page.counts("?job_id=99000000") == {}
        told = page.ask("names/tasks")
        assert (told["names"], told["rest"], told["note"]) == (5, None, None)
        assert sorted(row["name"] for row in told["rows"][:2]) == ["even", "odd"]
        states = {"FINISHED": TASKS - failed + 8, "FAILED": failed, "RUNNING": 1}
        assert page.ask("names/jobs") == {"rows": [{"job_id": job, "total": TASKS + 9, "states": states}], "rest": None}
        assert page.ask("rows/tasks?name=even&limit=1")["total"] < TASKS // 2, "rows are remembered for a while only"
        refused = page.dashboard.ask("GET", "/ox/v1/names/tasks?job_id=x")
        assert refused.status == 400 and "oxiray list jobs" in refused.text
        end.touch()
        wait_until(lambda: page.counts() == expected | {"lasts": {"FINISHED": 1}})


def test_a_nodes_row_and_charts_have_what_its_machine_measures(page: Page) -> None:
    [node] = page.ask("rows/nodes")["rows"]
    wait_until(lambda: "cpu_busy" in page.ask("rows/nodes")["rows"][0])
    [node] = page.ask("rows/nodes")["rows"]
    assert 0 <= node["cpu_busy"] <= 1 and node["cpu_count"] > 0
    assert 0 < node["memory_used"] < node["memory_size"] and 0 < node["disk_used"] < node["disk_size"]
    assert node["received"] >= 0 and node["sent"] >= 0
    assert node["store_size"] == node["resources"]["object_store_memory"] and node["store_used"] <= node["store_size"]
    assert node["version"] == page.ask("overview")["version"] and node["silent"] is False
    in_use = {"CPU held", "CPU in use", "memory in use", "disk in use", "received", "sent"}
    names = lambda: {line["name"] for line in page.ask(f"series?of=node&node={node['key']}")["lines"]}  # noqa: E731
    wait_until(lambda: names() >= in_use)


def test_a_processs_row_has_its_memory_its_processor_and_its_files(page: Page, tmp_path: Path) -> None:
    def measured() -> list[dict[str, Any]]:
        rows = page.ask("rows/workers?state=ALIVE")["rows"]
        return [row for row in rows if row["name"] == "Counter" and "memory" in row]

    with running(page, tmp_path, 10):
        wait_until(measured)
        [row] = measured()
        resident = int(Path(f"/proc/{row['pid']}/status").read_text().partition("VmRSS:")[2].split()[0]) * 1024
    assert resident / 3 < row["memory"] < resident * 3
    assert row["cpu"] >= 0 and row["files"] > 0 and (row["own_memory"] is None or row["own_memory"] <= row["memory"])


def test_a_node_that_is_stopped_is_counted_as_silent_until_it_goes_on(tmp_path: Path) -> None:
    # Before its lease is over, nobody knows that it is not there any more.
    folders = [tmp_path / name for name in ("head", "member")]
    for folder in folders:
        folder.mkdir()
    made = started(folders[0], "--node-lease=60")
    member, page = Home(folders[1]), Page(made)
    try:
        joined = member.oxiray("start", f"--address=127.0.0.1:{made.home.port}", f"--token-file={made.session / 'join-token'}", "--num-cpus=1")
        assert joined.returncode == 0, joined.stderr
        rows = lambda: page.ask("rows/nodes")["rows"]  # noqa: E731
        wait_until(lambda: len([row for row in rows() if "cpu_busy" in row]) == 2)
        assert page.ask("overview")["nodes"] == {"alive": 2, "dead": 0, "silent": 0}
        daemon = int(json.loads((session_of(member) / "session.json").read_text())["pid"])
        with stopped(daemon):
            wait_until(lambda: page.ask("overview")["nodes"]["silent"] == 1)
            [silent] = page.ask("rows/nodes?silent=true")["rows"]
            assert not silent["head"] and silent["state"] == "ALIVE"
        wait_until(lambda: page.ask("overview")["nodes"] == {"alive": 2, "dead": 0, "silent": 0})
    finally:
        member.oxiray("stop", "--force")
        made.home.oxiray("stop", "--force")
