"""History: written by a program beside the head, read back when the cluster is gone, as a page, as JSON and as one file."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from boards import CHROMIUM
from dashboard_client import TOKEN, session_of
from homes import PREAMBLE, Home, free_port
from oxiray._cli import native_binary
from s3 import BUCKET, S3Server, serving
from test_start import listening
from watching import alive, stopped, wait_until

pytestmark = pytest.mark.timeout(300)

AXE = (Path(__file__).with_name("page") / "axe.min.js").read_text()
#: How long tasks may take to be told of, in seconds: where the cluster answers late, it is asked again twenty times as late.
TASKS_LIMIT_S = 150.0
#: A name that would do harm where it became markup.
HOSTILE = "</script><script>document.title='harmed'</script>"
WORK = f"""
@ray.remote
def square(x):
    return x * x
@ray.remote
def breaks():
    raise ValueError("on purpose")
@ray.remote(num_gpus=0.5)
def trains():
    time.sleep(0.5)
ray.get(trains.remote())
counter = Counter.options(name="kept-counter", lifetime="detached").remote(3)
ray.get(counter.next.remote())
ray.get([square.remote(x) for x in range(5)])
ray.get(square.options(name={HOSTILE!r}).remote(7))
try:
    ray.get(breaks.options(max_retries=0).remote())
except ValueError:
    pass
"""


class Cluster:
    """A head that records, and what its history says."""

    def __init__(self, folder: Path, place: str | None = None, **variables: str) -> None:
        self.home = Home(folder)
        self.home.environment |= {"RAY_AUTH_TOKEN": TOKEN, **variables}
        self.home.environment.pop("RAY_ADDRESS", None)
        self.place = place or str(folder / "history")

    def start(self, *options: str) -> None:
        words = ("start", "--head", f"--port={self.home.port}", "--num-cpus=2", "--num-gpus=2", f"--history={self.place}", *options)
        done = self.home.oxiray(*words)
        assert done.returncode == 0, done.stdout + done.stderr

    def recorders(self) -> list[int]:
        """The processes that record."""
        daemon = int(json.loads((session_of(self.home) / "session.json").read_text())["pid"])
        found = []
        for child in Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if "oxiray-dashboard" in Path(f"/proc/{child}/cmdline").read_text():
                    found.append(int(child))
        return found

    def kill(self) -> None:
        """Kills the head."""
        pid = int(json.loads((session_of(self.home) / "session.json").read_text())["pid"])
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(pid))

    @contextlib.contextmanager
    def program(self, text: str) -> Iterator[None]:
        """A driver that did this, and stays until the end of the block."""
        code = f"{PREAMBLE}{text}\nprint('done', flush=True)\ninput()\n"
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, env=self.home.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdin is not None and run.stdout is not None
            assert run.stdout.readline() == "done\n"
            yield
            run.stdin.write("\n")
            run.stdin.close()
            assert run.wait(60) == 0

    def files(self) -> dict[str, Path]:
        """The files of the one session, by their names."""
        return {path.name: path for path in Path(self.place).glob("session_*/*")}

    def events_written(self) -> set[int]:
        """The numbers of the events that are in the files."""
        packed = [path for path in self.files().values() if path.suffix == ".gz"]
        return {line["event"]["number"] for path in packed for line in lines(path) if line["kind"] == "event"}

    def told(self, *options: str) -> dict[str, Any]:
        """What the history says, as the command prints it."""
        done = self.home.oxiray("dashboard", f"--history={self.place}", "--once-json", *options)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert isinstance(told, dict)
        return told

    def says(self, holds: Callable[[dict[str, Any]], object]) -> bool:
        """Whether the history says so by now; before its first line is written it says nothing."""
        done = self.home.oxiray("dashboard", f"--history={self.place}", "--once-json")
        return done.returncode == 0 and bool(holds(json.loads(done.stdout)))


def lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def names(rows: list[dict[str, Any]]) -> set[str]:
    return {row["name"] for row in rows}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that worked, recorded, and is gone."""
    cluster = Cluster(tmp_path_factory.mktemp("recorded"))
    cluster.start()
    try:
        daemon = int(json.loads((session_of(cluster.home) / "session.json").read_text())["pid"])
        assert listening(daemon) == [cluster.home.port]
        wait_until(lambda: cluster.recorders())
        (recorder,) = cluster.recorders()
        assert listening(recorder) == [], "a recorder has no port"
        with cluster.program(WORK):
            states = lambda told, name: [task["state"] for task in told["tasks"] if task["name"] == name]  # noqa: E731
            # What is written may have been looked at while tasks ran.
            wait_until(lambda: cluster.says(lambda told: states(told, "square") == ["FINISHED"] * 5), TASKS_LIMIT_S)
            wait_until(lambda: cluster.says(lambda told: states(told, HOSTILE) == ["FINISHED"]), TASKS_LIMIT_S)
            wait_until(lambda: cluster.says(lambda told: states(told, "breaks") == ["FAILED"]), TASKS_LIMIT_S)
        wait_until(lambda: cluster.says(lambda told: [job["state"] for job in told["jobs"]] == ["SUCCEEDED"]))
        wait_until(lambda: cluster.says(lambda told: "job_ended" in {event["event"] for event in told["events"]}))
    finally:
        assert cluster.home.oxiray("stop", "--force").returncode == 0
    wait_until(lambda: not alive(recorder))
    return cluster


def test_what_was_recorded_is_read_back_when_the_cluster_is_gone(recorded: Cluster) -> None:
    told = recorded.told()
    assert told["schema"] == 1 and told["session"].startswith("session_") and told["notes"] == []
    (job,) = told["jobs"]
    assert job["state"] == "SUCCEEDED" and job["ended_ms"] >= job["started_ms"] > 0
    tasks = [task for task in told["tasks"] if task["name"] == "square"]
    assert len(tasks) == 5 and {task["state"] for task in tasks} == {"FINISHED"}
    (broken,) = (task for task in told["tasks"] if task["name"] == "breaks")
    assert broken["state"] == "FAILED" and "on purpose" in broken["message"]
    (actor,) = told["actors"]
    assert (actor["class"], actor["name"]) == ("Counter", "kept-counter")
    assert len(told["nodes"]) == 1 and told["nodes"][0]["head"]
    assert {"head_started", "job_started", "actor_alive", "job_ended"} <= {event["event"] for event in told["events"]}


def test_the_files_are_their_owners_and_lines_that_anybody_can_read(recorded: Cluster) -> None:
    files = recorded.files()
    (job,) = recorded.told()["jobs"]
    assert {"cluster.jsonl.gz", f"{job['job_id']}.jsonl.gz", "index.json"} <= files.keys()
    folder = files["index.json"].parent
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o600}
    first = lines(files["cluster.jsonl.gz"])[0]
    begin = first["begin"]
    assert first["kind"] == "begin" and begin["schema"] == 1 and begin["session"] == folder.name
    assert begin["cluster"].endswith(f":{recorded.home.port}") and begin["version"]
    rows = [line for line in lines(files[f"{job['job_id']}.jsonl.gz"]) if line["kind"] == "row"]
    assert {"tasks", "actors", "jobs"} <= {line["list"] for line in rows}
    index = json.loads(files["index.json"].read_text())
    assert index["jobs"][job["job_id"]]["state"] == "SUCCEEDED" and index["until_ms"] > index["begun_ms"]


def test_an_earlier_moment_is_shown_as_it_was(recorded: Cluster) -> None:
    told = recorded.told()
    early = recorded.told(f"--at={told['begun_ms']}")
    assert early["jobs"] == [] and early["at_ms"] == told["begun_ms"]
    (job,) = told["jobs"]
    later = recorded.told(f"--at={told['until_ms'] + 10_000_000}")
    assert later["at_ms"] == told["until_ms"] and [row["key"] for row in later["jobs"]] == [job["key"]]


def test_what_is_no_history_is_told_of_with_the_way_out(recorded: Cluster, tmp_path: Path) -> None:
    cases = {
        str(tmp_path / "missing"): "there is no history at",
        str(tmp_path): "oxiray start --head --history",
        "gs://bucket/prefix": "s3://bucket/prefix",
    }
    for place, words in cases.items():
        done = recorded.home.oxiray("dashboard", f"--history={place}", "--once-json")
        assert done.returncode == 1 and words in done.stderr, (place, done.stderr)
    done = recorded.home.oxiray("dashboard", f"--history={recorded.place}", "--session=other", "--once-json")
    assert done.returncode == 1 and "no history of session `other`" in done.stderr and "session_" in done.stderr
    other = tmp_path / "session_9" / "cluster.jsonl.gz"
    other.parent.mkdir()
    other.write_bytes(gzip.compress(b'{"at_ms":1,"kind":"begin","begin":{"schema":7}}\n'))
    done = recorded.home.oxiray("dashboard", f"--history={tmp_path}", "--once-json")
    assert done.returncode == 1 and "is of version 7" in done.stderr and "reads version 1" in done.stderr


def test_a_damaged_file_is_read_as_far_as_it_goes(recorded: Cluster, tmp_path: Path) -> None:
    whole = recorded.told()
    session = tmp_path / whole["session"]
    session.mkdir()
    for name, path in recorded.files().items():
        (session / name).write_bytes(path.read_bytes())
    job = session / f"{whole['jobs'][0]['job_id']}.jsonl.gz"
    job.write_bytes(job.read_bytes()[:-5])
    done = recorded.home.oxiray("dashboard", f"--history={tmp_path}", "--once-json")
    told = json.loads(done.stdout)
    assert any(job.name in note and "damaged or cut" in note for note in told["notes"]), told["notes"]
    assert told["nodes"] == whole["nodes"] and len(told["tasks"]) <= len(whole["tasks"])
    job.write_bytes(b"this is no history at all\n")
    done = recorded.home.oxiray("dashboard", f"--history={tmp_path}", "--once-json")
    told = json.loads(done.stdout)
    assert any("none of history's" in note for note in told["notes"]) and told["tasks"] == []


def test_what_is_packed_too_well_takes_bounded_memory(recorded: Cluster, tmp_path: Path) -> None:
    session = tmp_path / "session_1"
    session.mkdir()
    row = {"at_ms": 5, "kind": "row", "list": "tasks", "cells": {"state": "RUNNING", "text": "x" * 10_000}}
    with gzip.open(session / "cluster.jsonl.gz", "wt", compresslevel=1) as file:
        file.write('{"at_ms":1,"kind":"begin","begin":{"schema":1,"job":"cluster"}}\n')
        for number in range(60_000):
            file.write(json.dumps({**row, "key": str(number), "at_ms": 5 + number}) + "\n")
    assert (session / "cluster.jsonl.gz").stat().st_size < 20_000_000
    # The program has 512 MiB; these lines have 600 MB.
    done = recorded.home.oxiray("dashboard", f"--history={tmp_path}", "--once-json")
    told = json.loads(done.stdout)
    assert 0 < len(told["tasks"]) < 60_000 and any("its beginning is left out" in note for note in told["notes"])


class Shown:
    """The page over a history."""

    def __init__(self, cluster: Cluster, *options: str) -> None:
        self.port = free_port()
        words = [str(native_binary()), "dashboard", f"--history={cluster.place}", f"--port={self.port}", *options]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=cluster.home.environment)
        assert self.process.stdout is not None
        self.process.stdout.readline()
        self.link = self.process.stdout.readline().strip()

    def ask(self, path: str, token: str = TOKEN, method: str = "GET") -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}/ox/v1/{path}", headers=headers, method=method)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.load(answer)

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)


@pytest.fixture
def shown(recorded: Cluster) -> Iterator[Shown]:
    made = Shown(recorded)
    yield made
    assert made.end() == 0


def test_the_page_over_a_history_answers_for_each_moment(recorded: Cluster, shown: Shown) -> None:
    overview = shown.ask("overview")
    history = overview["history"]
    assert overview["may_write"] is False and history["session"] == recorded.told()["session"]
    assert overview["nodes"]["alive"] == 1
    assert shown.ask("rows/jobs")["total"] == 1
    assert shown.ask(f"rows/jobs?at={history['begun_ms']}")["total"] == 0
    assert shown.ask("rows/tasks?name=square&limit=2")["total"] == 5
    assert {row["name"] for row in shown.ask("names/tasks")["rows"]} >= {"square", "breaks"}
    span = f"from={history['begun_ms']}&to={history['until_ms']}"
    picture = shown.ask(f"holdings?{span}")
    (node,) = picture["nodes"]
    bars = [bar for device in node["devices"] for bar in device["bars"] if picture["names"][bar[5]] == "trains"]
    assert picture["unit"] == "device" and len(node["devices"]) == 2 and bars[0][3] == 0.5 and bars[0][1] - bars[0][0] >= 500
    (grant,) = (row for row in shown.ask(f"rows/grants?{span}")["rows"] if (row["name"], row["state"]) == ("trains", "held"))
    assert shown.ask(f"rows/grants?key={grant['key']}")["total"] == 1
    held = shown.ask(f"rows/devices?at={grant['from_ms'] + 1}")["rows"]
    assert sorted(row["held"] for row in held) == [0, 0.5] and {row["state"] for row in shown.ask("rows/devices")["rows"]} == {"free"}
    (job,) = shown.ask("rows/jobs")["rows"]
    assert job["device_seconds"] >= 0.25
    assert shown.ask("map")["nodes"]
    assert shown.ask("rows/objects")["total"] == 0
    with pytest.raises(urllib.error.HTTPError, match="403"):
        shown.ask("overview", token="a-wrong-token-of-the-tests-000000")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        shown.ask("jobs/one/log")
    assert listening(shown.process.pid) == [shown.port]


def test_the_dashboards_death_is_nobodys_and_loses_what_was_not_written(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.start()
    try:
        cluster.home.program("Counter.options(name='first', lifetime='detached').remote(1)")
        wait_until(lambda: cluster.says(lambda told: "first" in names(told["actors"])))
        (recorder,) = cluster.recorders()
        os.kill(recorder, signal.SIGKILL)
        cluster.home.program("Counter.options(name='second', lifetime='detached').remote(1)")
        both = [("first", "ALIVE"), ("second", "ALIVE")]
        wait_until(lambda: cluster.says(lambda told: sorted((actor["name"], actor["state"]) for actor in told["actors"]) == both))
        told = cluster.told()
        assert len(told["seams"]) == 1
        # It went on in the chronicle where it was: nothing is there twice, and nothing is missing.
        # Files are written one after the other: what is new may be in one of them before it is in another.
        wait_until(lambda: (events := cluster.events_written()) == set(range(1, max(events) + 1)))
        assert len(told["events"]) == len({event["key"] for event in told["events"]})
    finally:
        cluster.home.oxiray("stop", "--force")


def test_jobs_from_before_the_head_came_back_are_there_and_the_seam_is_marked(tmp_path: Path) -> None:
    cluster, port = Cluster(tmp_path), free_port()
    cluster.start(f"--dashboard-port={port}")
    try:
        cluster.home.program("ray.get(Counter.remote(1).next.remote())")
        wait_until(lambda: cluster.says(lambda told: [job["state"] for job in told["jobs"]] == ["SUCCEEDED"]))
        (before,) = cluster.told()["jobs"]
        beside = cluster.recorders()
        cluster.kill()
        # The page's program ends with the head, and has the port until then.
        wait_until(lambda: not any(map(alive, beside)))
        cluster.start(f"--dashboard-port={port}")

        def ask(path: str) -> Any:
            asked = urllib.request.Request(f"http://127.0.0.1:{port}/ox/v1/{path}", headers={"Authorization": f"Bearer {TOKEN}"})
            with contextlib.suppress(OSError), urllib.request.urlopen(asked, timeout=30) as answer:
                return json.load(answer)["rows"]
            return []

        wait_until(lambda: any(row["event"] == "head_came_back" for row in ask("rows/events")))
        (job,) = ask("rows/jobs")
        assert (job["job_id"], job["state"]) == (before["job_id"], "SUCCEEDED")
        rows = ask("rows/events")
        events = [row["event"] for row in rows]
        assert events.index("head_came_back") < events.index("head_started"), "the newest comes first"
        assert len({row["key"] for row in rows}) == len(events)
        cluster.home.program("ray.get(Counter.remote(1).next.remote())")
        wait_until(lambda: cluster.says(lambda told: len(told["jobs"]) == 2 and told["seams"]))
        told = cluster.told()
        assert before["job_id"] in {job["job_id"] for job in told["jobs"]}
        assert {"head_started", "head_came_back"} <= {event["event"] for event in told["events"]}
        assert len(list(Path(cluster.place).glob("session_*"))) == 1, "the session goes on"
    finally:
        cluster.home.oxiray("stop", "--force")


def test_a_job_has_a_bound_and_what_was_removed_is_told(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, OXIRAY_HISTORY_JOB_BYTES="65536")
    cluster.start()
    try:
        # Names that do not pack well fill the file.
        text = (
            "import hashlib\n"
            "@ray.remote\ndef f():\n    pass\n"
            "def name(n):\n    return ''.join(hashlib.sha256(f'{n} {i}'.encode()).hexdigest() for i in range(5))\n"
            "from pathlib import Path\n"
            "n = 0\n"
            f"while not list(Path({cluster.place!r}).rglob('0*.1.jsonl.gz')) or n < 2000:\n"
            "    ray.get([f.options(name=name(n + i)).remote() for i in range(100)])\n"
            "    n += 100\n"
        )
        is_told = lambda told: told["tasks"] and told["jobs"] and any("older lines were removed" in note for note in told["notes"])  # noqa: E731
        # Tasks are asked for as long as their driver is there.
        with cluster.program(text):
            wait_until(lambda: any(name.endswith(".1.jsonl.gz") for name in cluster.files()))
            wait_until(lambda: cluster.says(is_told), TASKS_LIMIT_S)
        # Files are renamed as long as somebody writes.
        assert cluster.home.oxiray("stop").returncode == 0
        sizes = {name: path.stat().st_size for name, path in cluster.files().items() if name.startswith("0")}
        # A piece of a quarter may go over the half that each file has.
        assert sizes and sum(sizes.values()) < 65536 * 3 // 2, sizes
        assert is_told(cluster.told())
    finally:
        cluster.home.oxiray("stop", "--force")


def test_old_histories_go_and_what_is_removed_is_told(tmp_path: Path) -> None:
    place = tmp_path / "history"
    old, new = place / "session_1", place / "session_2"
    for folder in (old, new):
        folder.mkdir(parents=True)
        for name in ("cluster.jsonl.gz", "01000000.jsonl.gz"):
            (folder / name).write_bytes(gzip.compress(b"{}\n"))
    ago = time.time() - 40 * 86400
    for path in old.iterdir():
        os.utime(path, (ago, ago))
    cluster = Cluster(tmp_path, str(place))
    cluster.start()
    try:
        wait_until(lambda: not old.exists(), 120)
        assert new.exists()
        # The first lines are written at about the time of the first removal.
        wait_until(lambda: any(place.rglob("index.json")))
        (session,) = (path.parent for path in place.rglob("index.json"))
        wait_until(lambda: len(json.loads((session / "index.json").read_text())["cuts"]) == 2, 120)
        cuts = json.loads((session / "index.json").read_text())["cuts"]
        assert {(cut["session"], cut["why"]) for cut in cuts} == {("session_1", "older than 30 days")}
    finally:
        cluster.home.oxiray("stop", "--force")


def test_a_place_that_takes_nothing_disturbs_nobody_and_is_told_of(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.start()
    try:
        wait_until(lambda: "cluster.jsonl.gz" in cluster.files())
        folder = cluster.files()["cluster.jsonl.gz"].parent
        (recorder,) = cluster.recorders()
        with stopped(recorder):
            kept = folder.rename(tmp_path / "kept")
            folder.write_text("a file is in the way")
        cluster.home.program("ray.get(Counter.options(name='late', lifetime='detached').remote(1).next.remote())")
        (log,) = tmp_path.rglob("history.log")
        wait_until(lambda: "history cannot be written" in log.read_text())
        with stopped(recorder):
            folder.unlink()
            kept.rename(folder)
        wait_until(lambda: cluster.says(lambda told: "late" in names(told["actors"])), 120)
        wait_until(lambda: "history is written again" in log.read_text())
    finally:
        cluster.home.oxiray("stop", "--force")


@pytest.mark.parametrize(("option", "words"), [("gs://bucket/a", "no place for history"), ("s3://", "no place for history"), ("/proc/none/x", "cannot be made")])
def test_a_place_that_cannot_be_is_refused_at_the_start(tmp_path: Path, option: str, words: str) -> None:
    done = Home(tmp_path).oxiray("start", "--head", "--num-cpus=1", f"--history={option}")
    assert done.returncode != 0 and words in done.stderr, done.stderr


@pytest.fixture(scope="module")
def report(recorded: Cluster) -> str:
    """The file that tells of the one job."""
    (job,) = recorded.told()["jobs"]
    path = Path(recorded.place).parent / "report.html"
    done = recorded.home.oxiray("report", job["job_id"], f"--history={recorded.place}", "-o", str(path))
    assert done.returncode == 0, done.stderr
    return path.read_text()


def test_a_report_has_everything_within_and_no_name_of_a_program_is_markup(report: str) -> None:
    assert HOSTILE not in report and "http://" not in report and ' src="' not in report
    block = report.partition('id="oxiray-report">')[2].partition("</script>")[0]
    told = json.loads(block)
    assert HOSTILE in names(told["rows"]["tasks"]) and len(told["rows"]["jobs"]) == 1
    assert "default-src 'none'" in report


def test_a_report_of_no_job_is_refused(recorded: Cluster, tmp_path: Path) -> None:
    done = recorded.home.oxiray("report", "none", f"--history={recorded.place}", "-o", str(tmp_path / "x.html"))
    assert done.returncode == 1 and "there is no job `none`" in done.stderr and not (tmp_path / "x.html").exists()
    done = Home(tmp_path).oxiray("report", "none", "-o", str(tmp_path / "x.html"))
    assert done.returncode == 1


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: `make test-dashboard` does it")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"{CHROMIUM} is not there: `make test-dashboard` installs it")
    with api.sync_playwright() as made:
        yield made.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])


def findings(page: Any) -> list[str]:
    """What axe finds that matters."""
    page.evaluate(AXE)
    told = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [f"{one['id']}: {one['nodes'][0]['target']}" for one in told["violations"] if one["impact"] in ("serious", "critical")]


def opened(browser: Any, address: str, **options: Any) -> tuple[Any, list[str]]:
    """A page, and what went wrong on it."""
    page, wrong = browser.new_page(**options), []
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("console", lambda told: told.type in ("error", "warning") and wrong.append(f"{told.type}: {told.text}"))
    page.on("request", lambda asked: asked.url.startswith((address.split("#")[0], "data:", "blob:")) or wrong.append(asked.url))
    page.goto(address)
    page.get_by_role("navigation", name="Views").wait_for()
    return page, wrong


def test_a_report_opens_from_a_file_and_asks_nobody(browser: Any, report: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(report)
    page, wrong = opened(browser, path.as_uri())
    page.goto(f"{path.as_uri()}#/tasks")
    page.get_by_text("breaks").first.wait_for()
    page.get_by_text(HOSTILE).first.wait_for()
    page.goto(f"{path.as_uri()}#/devices")
    page.locator(".timeline canvas").wait_for()
    assert "Oxiray" in page.title() and wrong == []
    page.close()


def test_the_scrubber_shows_another_moment_by_key(browser: Any, shown: Shown) -> None:
    page, wrong = opened(browser, shown.link, bypass_csp=True, reduced_motion="reduce")
    page.goto(f"{shown.link.split('#')[0]}#/jobs")
    page.get_by_role("table", name="Jobs").wait_for()
    slider = page.get_by_role("slider", name="Moment")
    slider.focus()
    assert findings(page) == []
    page.keyboard.press("Home")
    page.get_by_text("No jobs yet").wait_for()
    page.get_by_role("button", name="Latest").click()
    page.get_by_role("table", name="Jobs").wait_for()
    assert wrong == []
    page.close()


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with serving(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.mark.timeout(400)
def test_history_goes_to_storage_and_comes_back(s3: S3Server, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, f"s3://{BUCKET}/history", **s3.variables)
    cluster.start()
    try:
        with cluster.program(WORK):
            wait_until(lambda: cluster.says(lambda told: {"square", "breaks"} <= names(told["tasks"])), TASKS_LIMIT_S)
        # Each is written by itself.
        has = lambda name: any(key.endswith(name) for key in s3.keys("history/"))  # noqa: E731
        wait_until(lambda: has("/cluster/000001.jsonl.gz") and has("/index.json"))
        (recorder,) = cluster.recorders()
        os.kill(recorder, signal.SIGKILL)
        cluster.home.program("Counter.options(name='second', lifetime='detached').remote(1)")
        wait_until(lambda: cluster.says(lambda told: "second" in names(told["actors"])))
        wait_until(lambda: has("/cluster/000002.jsonl.gz"))
        s3.kill()
        cluster.home.program("Counter.options(name='third', lifetime='detached').remote(1)")
        (log,) = tmp_path.rglob("history.log")
        wait_until(lambda: "history cannot be written" in log.read_text(), 120)
        s3.start()
        wait_until(lambda: cluster.says(lambda told: "third" in names(told["actors"])), 180)
        assert cluster.told()["notes"] == []
    finally:
        cluster.home.oxiray("stop", "--force")


def test_storage_without_a_bucket_or_with_a_wrong_key_is_told_of(s3: S3Server, tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.environment |= s3.variables
    done = home.oxiray("dashboard", f"--history=s3://{BUCKET}/nothing-here", "--once-json")
    assert done.returncode == 1 and "there is no history at s3://" in done.stderr
    home.environment["AWS_SECRET_ACCESS_KEY"] = "wrong"
    done = home.oxiray("dashboard", f"--history=s3://{BUCKET}/history", "--once-json")
    assert done.returncode == 1 and "listing files at" in done.stderr and "AWS_" in done.stderr, done.stderr
