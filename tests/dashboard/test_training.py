"""Training runs: what they report is seen on the page as curves, and in the history."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dashboard_client import started
from homes import PREAMBLE
from oxiray.train._told import numbers
from test_history import Cluster
from watching import wait_until

pytestmark = pytest.mark.timeout(300)

#: A run that reports falling losses; it ends when the file is there.
RUN = """
from oxiray.train import Checkpoint, RunConfig, ScalingConfig, report
from oxiray.train.data_parallel_trainer import DataParallelTrainer
from pathlib import Path

def work(config):
    for step in range(5):
        report({"loss": 2.0 / (step + 1), "note": "text", "bad": float("nan"), "flag": True})
        time.sleep(0.1)
    report({"loss": 0.3}, checkpoint=Checkpoint(config["folder"]))
    while not Path(config["end"]).exists():
        report({"loss": 0.25})
        time.sleep(0.5)
    report({"loss": 0.125})

trainer = DataParallelTrainer(
    work, train_loop_config={"end": END, "folder": FOLDER}, scaling_config=ScalingConfig(num_workers=1),
    run_config=RunConfig(name="falls", storage_path=STORAGE),
)
trainer.fit()
"""


def test_numbers_alone_are_told_and_not_too_many() -> None:
    assert numbers({"loss": 0.5, "n": 3, "text": "x", "flag": True, "nan": math.nan, "inf": math.inf, "none": None, "list": [1]}) == {"loss": 0.5, "n": 3.0}
    many = numbers({f"{number} {'x' * 99}": number for number in range(40)})
    assert len(many) == 14 and max(map(len, many)) == 32


def test_a_run_is_a_curve_on_the_page_and_in_the_history(tmp_path: Path) -> None:
    end, place = tmp_path / "end", tmp_path / "history"
    made = started(tmp_path, f"--history={place}")
    cluster = Cluster(tmp_path, str(place))
    cluster.home = made.home
    try:

        def rows() -> list[dict[str, Any]]:
            told = made.ask("GET", "/ox/v1/rows/runs")
            return list(json.loads(told.body)["rows"])

        program = RUN.replace("END", repr(str(end))).replace("STORAGE", repr(str(tmp_path / "storage")))
        folder = tmp_path / "weights"
        folder.mkdir()
        (folder / "weights").write_text("w")
        program = program.replace("FOLDER", repr(str(folder)))
        with subprocess.Popen([sys.executable, "-c", PREAMBLE + program], env=made.home.environment) as run:
            wait_until(lambda: [row["name"] for row in rows()] == ["falls"])
            (row,) = rows()
            chart = lambda: json.loads(made.ask("GET", f"/ox/v1/series?of=run&run={row['key']}").body)  # noqa: E731
            wait_until(lambda: len(chart()["times"]) >= 2)
            assert [line["name"] for line in chart()["lines"]] == ["loss"]
            wait_until(lambda: rows()[0]["checkpoint"] == 6)
            told = chart()
            assert told["checkpoints"][-1][1] == 6 and len(told["reports"]) == len(told["times"])
            assert 6 <= told["reports"][-1] <= rows()[0]["reports"]
            # Each rank is a call under a name of its own, whose process tells where it is.
            (rank,) = json.loads(made.ask("GET", f"/ox/v1/rows/tasks?job_id={row['job_id']}&search=falls:%20rank").body)["rows"]
            assert (rank["name"], rank["state"]) == ("falls: rank 0", "RUNNING") and rank["pid"] and rank["node_id"]
            stacks = json.loads(made.ask("GET", f"/ox/v1/stacks?worker_id={rank['worker_id']}").body)
            assert "work" in {frame["function"] for stack in stacks["processes"][0]["stacks"] for frame in stack["frames"]}
            end.write_text("")
            assert run.wait(60) == 0
        # The last report is told at the end.
        wait_until(lambda: rows()[0]["numbers"] == {"loss": 0.125})
        wait_until(lambda: cluster.says(lambda told: [run["numbers"] for run in told["runs"]] == [{"loss": 0.125}]))
        early = cluster.told(f"--at={row['started_ms']}")
        assert early["runs"][0]["numbers"] != {"loss": 0.125}
        report = tmp_path / "report.html"
        (job,) = cluster.told()["jobs"]
        done = made.home.oxiray("report", job["job_id"], f"--history={place}", "-o", str(report))
        assert done.returncode == 0, done.stderr
        told = json.loads(report.read_text().partition('id="oxiray-report">')[2].partition("</script>")[0])
        assert told["runs"][row["key"]]["lines"][0]["name"] == "loss"
        assert told["overview"]["warnings"] == [], "nothing is left out"
        events = cluster.home.oxiray("list", "events")
        assert "train_reported" not in events.stdout, "reports are no events of the cluster"
    finally:
        made.home.oxiray("stop", "--force")
