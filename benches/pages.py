"""Oxiray's page beside Ray's dashboard, in one browser on one machine: what serves it, and what comes before something is seen.

Then Oxiray's page over much, and a head through which tasks run while its page is open and while it is not. Prints tables and, with
`--write`, keeps them as a document.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "shared"))
import looking  # noqa: E402  (it lies with the tests, not in a package)
import pasts  # noqa: E402
from boards import CHROMIUM, settled  # noqa: E402
from compare import FOREIGN, machine  # noqa: E402  (it lies beside this file, not in a package)
from homes import free_port  # noqa: E402

#: How long a head may take to show its page, and a page to be painted, in seconds.
LIMIT_S = 120
#: How long a page is looked at after it was painted, for requests to others, in seconds.
LOOKED_AT_S = 5
ROWS = (
    ("processes", "processes of a head with its page", "{:.0f}"),
    ("memory_mb", "their memory, each shared page counted once (PSS)", "{:.0f} MB"),
    ("bytes_kb", "bytes that were loaded when something was first painted", "{:,.0f} KB"),
    ("paint_ms", "time until something is first painted", "{:.0f} ms"),
    ("requests", "requests until then", "{:.0f}"),
    ("foreign", "requests to other hosts, of a page that is looked at for five seconds", "{:.0f}"),
)
#: Histories that the page is looked at over, by what they have.
PASTS = {
    "100,000 tasks": ({"tasks": 100_000}, "tasks"),
    "1,000 nodes of 8 devices, 40,000 holdings": ({"nodes": 1_000, "devices": 8, "held": 40_000}, "devices"),
    "8 devices, 1,000,000 entries of the chronicle": ({"nodes": 1, "devices": 8, "held": 500_000}, "devices"),
}
#: Tasks that run through a head, so many at once.
WORK = """
import sys, time, ray
ray.init("auto", log_to_driver=False, logging_level="ERROR")

@ray.remote
def nothing():
    pass

ray.get([nothing.remote() for _ in range(1_000)])
print("ready", flush=True)
sys.stdin.readline()
began = time.perf_counter()
for _ in range({batches}):
    ray.get([nothing.remote() for _ in range({batch})])
print({batches} * {batch} / (time.perf_counter() - began), flush=True)
"""
BATCHES, BATCH = 2_500, 2_000
#: Below it the page is told of what changes, for as long as it is open.
FOLLOWED = "/ox/v1/live"
#: What the daemon says of its loop when it ends.
TURNS = re.compile(r"turns of the loop of process \d+: (\d+), 99\.9 % within ([\d.]+) ms, the longest ([\d.]+) ms; longer than .*\b5 ms: (\d+)")
#: What the browser knows of how the page was loaded; nothing where nothing is painted yet.
PAINTED = """() => {
    const [paint] = performance.getEntriesByName("first-contentful-paint");
    if (!paint) return null;
    const loaded = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
        .filter((one) => one.responseEnd > 0 && one.responseEnd <= paint.startTime);
    return {paint: paint.startTime, bytes: loaded.reduce((sum, one) => sum + one.transferSize, 0), requests: loaded.length};
}"""


class Head:
    """A head with its page: of Oxiray, or of Ray."""

    def __init__(self, who: str, python: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="oxb-", dir="/tmp"))
        self.mark, self.port = f"OXB_MARK={uuid.uuid4().hex}", free_port()
        kept = {key: value for key, value in os.environ.items() if not FOREIGN.match(key)}
        name, _, value = self.mark.partition("=")
        self._environment = {
            **kept, name: value, "OXIRAY_TMPDIR": str(self.folder), "HOME": str(self.folder), "RAY_USAGE_STATS_ENABLED": "0",
            "PATH": f"{python.parent}:{kept['PATH']}",
        }  # fmt: skip
        self.python, self._is_stopped = str(python), False
        self._command = str(python.with_name("oxiray" if who == "oxiray" else "ray"))
        own = [] if who == "oxiray" else [f"--temp-dir={self.folder}", "--disable-usage-stats"]
        self._run("start", "--head", f"--port={free_port()}", "--num-cpus=2", "--include-dashboard=true", f"--dashboard-port={self.port}", *own)

    def _run(self, *words: str) -> None:
        done = subprocess.run([self._command, *words], env=self._environment, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        if done.returncode:
            sys.exit(f"{self._command} {' '.join(words)} ended with status {done.returncode}:\n{done.stdout}{done.stderr}")

    def address(self) -> str:
        """Where the page is, with what opens it."""
        found = list(self.folder.glob("oxiray-*/session_*/http-token"))
        if not found:
            return f"http://127.0.0.1:{self.port}/"
        headers = {"Authorization": f"Bearer {found[0].read_text().strip()}", "Content-Type": "application/json"}
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}/ox/v1/keys", b"{}", headers)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return f"http://127.0.0.1:{self.port}/#key={json.load(answer)['key']}"

    def is_there(self) -> bool:
        """Whether the page is served."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=5):
                return True
        except (OSError, urllib.error.URLError):
            return False

    def processes(self) -> dict[str, float]:
        """How many there are, and their memory."""
        count = kilobytes = 0
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self.mark.encode() in (entry / "environ").read_bytes():
                    lines = (entry / "smaps_rollup").read_text().splitlines()
                    kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
                    count += 1
            except OSError:
                continue  # it has ended
        return {"processes": count, "memory_mb": kilobytes / 1e3}

    def tasks_per_s(self) -> float:
        """How many tasks run through it in a second."""
        code = WORK.format(batches=BATCHES, batch=BATCH)
        command = [self.python, "-c", code]
        with subprocess.Popen(command, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
            assert driver.stdin is not None and driver.stdout is not None
            if driver.stdout.readline() != "ready\n":
                sys.exit("the program of tasks ended before it began")
            driver.stdin.write("\n")
            driver.stdin.flush()
            return float(driver.stdout.readline())

    def turns(self) -> dict[str, float]:
        """Stops it, and returns how long the turns of its loop took."""
        self._run("stop")
        self._is_stopped = True
        (log,) = self.folder.glob("oxiray-*/logs/session_*/daemon.log")
        found = until(lambda: TURNS.findall(log.read_text()))[-1]
        count, within, longest, long = (float(figure) for figure in found)
        return {"turns": count, "p999_ms": within, "longest_ms": longest, "long_part": long / count}

    def end(self) -> None:
        """Stops it."""
        try:
            if not self._is_stopped:
                self._run("stop", "--force")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def head(who: str, python: Path) -> Iterator[Head]:
    """One that shows its page."""
    made = Head(who, python)
    try:
        until(made.is_there)
        yield made
    finally:
        made.end()


def until(holds: Callable[[], object]) -> Any:
    """What it returns once it is true."""
    end = time.monotonic() + LIMIT_S
    while not (found := holds()):
        if time.monotonic() > end:
            sys.exit("it did not come to hold in time")
        time.sleep(0.05)
    return found


def version(python: Path) -> str:
    """The version of the `ray` that this Python imports."""
    code = "import ray; print(ray.__version__)"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def polite(folder: Path) -> str:
    """A program that is the browser, which runs when nobody else does: what the page costs its server is measured, not what drawing it
    costs.
    """
    program = folder / "chromium"
    program.write_text(f'#!/bin/sh\nexec chrt --idle 0 {CHROMIUM} "$@"\n')
    program.chmod(0o755)
    return str(program)


def loaded(browser: Any, address: str) -> dict[str, float]:
    """The page, opened once in a browser that has nothing of it yet."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        page, hosts = context.new_page(), []
        page.on("request", lambda asked: hosts.append(urlsplit(asked.url).hostname))
        page.goto(address, wait_until="commit")
        told = until(lambda: page.evaluate(PAINTED))
        page.wait_for_timeout(LOOKED_AT_S * 1e3)
        foreign = sum(host not in ("127.0.0.1", None) for host in hosts)
        return {"paint_ms": told["paint"], "bytes_kb": told["bytes"] / 1e3, "requests": told["requests"], "foreign": foreign}
    finally:
        context.close()


def comparison(browser: Any, pythons: dict[str, Path], count: int) -> list[str]:
    """Both pages over a head without work, as a table."""
    found: dict[str, dict[str, float]] = {}
    for who, python in pythons.items():
        with head(who, python) as one:
            rounds = [loaded(browser, one.address()) for _ in range(count)]
            found[who] = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]} | one.processes()
            print(f"  {who}: {found[who]}", flush=True)
    table = ["| | Oxiray | Ray | Ray's by ours |", "|---|---:|---:|---:|"]
    for key, name, form in ROWS:
        ours, theirs = found["oxiray"][key], found["ray"][key]
        table.append(f"| {name} | {form.format(ours)} | {form.format(theirs)} | {f'{theirs / ours:,.1f}×' if ours else '—'} |")
    return table


def over(browser: Any, folder: Path, view: str) -> dict[str, float]:
    """The page over a history: what comes before it is seen, how it moves, and what its server takes."""
    server = pasts.Shown(folder)
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        page = context.new_page()
        answers = looking.Answers(page, server.address)
        page.goto(server.link)
        page.get_by_role("navigation", name="Views").wait_for()
        found = {"paint_ms": looking.painted_ms(page)}
        page.goto(f"{server.address}#/nodes")
        page.get_by_role("table", name="Nodes").wait_for()
        began = time.perf_counter()
        page.evaluate(f"location.hash = '#/{view}'")
        page.locator("table[aria-label=Tasks] tbody tr, .timeline canvas").first.wait_for()
        settled(page)
        found["view_ms"] = (time.perf_counter() - began) * 1e3
        if view == "devices":
            for act in ("zoom", "scroll"):
                found[f"{act}_ms"] = looking.frames_ms(page, act)[-1]
        found["answer_kb"] = max(size for path, size in answers.sizes().items() if "/ox/" in path) / 1e3
        return found | {"memory_mb": server.peak_mb()}
    finally:
        context.close()
        server.end()


def much(browser: Any) -> list[str]:
    """The page over histories, as a table."""
    table = ["| history | first paint | its view | longest frame, zoomed | scrolled | largest answer | most memory |", "|---|---:|---:|---:|---:|---:|---:|"]
    for name, (has, view) in PASTS.items():
        with tempfile.TemporaryDirectory(prefix="oxb-") as folder:
            found = over(browser, pasts.write(Path(folder), **has), view)
        print(f"  {name}: {found}", flush=True)
        frames = [f"{found[key]:.0f} ms" if key in found else "" for key in ("zoom_ms", "scroll_ms")]
        cells = [f"{found['paint_ms']:.0f} ms", f"{found['view_ms']:.0f} ms", *frames, f"{found['answer_kb']:.0f} KB", f"{found['memory_mb']:.0f} MiB"]
        table.append(f"| {name} | {' | '.join(cells)} |")
    return table


class Reader:
    """Asks for what an open page with the list of tasks asks for, once a second, and reads what the page is told of changes.

    The browser itself would take the cores that the tasks run on, or starve: it would be on its reader's machine.
    """

    def __init__(self, browser: Any, address: str) -> None:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        try:
            page, asked = context.new_page(), {}
            page.on("request", lambda one: asked.setdefault(one.url, one))
            page.goto(address)
            page.get_by_role("navigation", name="Views").wait_for()
            page.evaluate("location.hash = '#/tasks'")
            until(lambda: page.wait_for_timeout(50) or any("/rows/tasks" in url for url in asked))
            self._asked = {url: one.all_headers() for url, one in asked.items() if "/ox/v1/" in url}
        finally:
            context.close()
        self._followed = [url for url in self._asked if FOLLOWED in url]
        self._again = [url for url in self._asked if "/names/tasks" in url or "/rows/tasks" in url]
        if len(self._followed) != 1 or len(self._again) != 2:
            sys.exit(f"the page asks for other things than it did: {list(self._asked)}")
        self.answers, self._ended = 0, threading.Event()
        for run in (self._ask, self._follow):
            threading.Thread(target=run, daemon=True).start()

    def _open(self, url: str) -> Any:
        return urllib.request.urlopen(urllib.request.Request(url, headers=self._asked[url]), timeout=LIMIT_S)

    def _ask(self) -> None:
        while not self._ended.wait(1):
            for url in self._again:
                with self._open(url) as answer:
                    answer.read()
                self.answers += 1

    def _follow(self) -> None:
        # The stream breaks off when the head ends.
        with self._open(self._followed[0]) as stream, suppress(http.client.HTTPException, OSError):
            while not self._ended.is_set() and stream.read1(65_536):
                pass

    def end(self) -> int:
        """How many answers came since it began."""
        self._ended.set()
        return self.answers


def loop(browser: Any, python: Path, rounds: int) -> list[str]:
    """A head through which tasks run, by turns without a page and with one open, as a table."""
    found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for number in range(rounds):
        for is_open in (number % 2 == 1, number % 2 == 0):
            with head("oxiray", python) as one:
                reader = Reader(browser, one.address()) if is_open else None
                tasks = one.tasks_per_s()
                found[is_open].append({"tasks": tasks, "answers": reader.end() if reader else 0, **one.turns()})
                print(f"  page open: {is_open}: {found[is_open][-1]}", flush=True)
    table = [
        "| page | tasks in a second | answers to the page meanwhile | turns of the loop | 99.9 % within | the longest | longer than 5 ms |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    middle = {is_open: {key: statistics.median(one[key] for one in ones) for key in ones[0]} for is_open, ones in found.items()}
    for is_open, of in middle.items():
        cells = [f"{of['tasks']:,.0f}", f"{of['answers']:.0f}", f"{of['turns']:,.0f}", f"{of['p999_ms']:.1f} ms", f"{of['longest_ms']:.1f} ms", f"{of['long_part'] * 100:.3f} %"]
        table.append(f"| {'open' if is_open else 'none'} | {' | '.join(cells)} |")
    ratios = sorted(with_page["tasks"] / without["tasks"] for without, with_page in zip(found[False], found[True], strict=True))
    told = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    return [*table, "", f"Tasks in a second with the page open, by those without one in the same round: {told}."]


def main() -> int:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ray-python", required=True, type=Path, help="an environment with ray[default]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    # Not resolved: the environment is the folder that the link lies in.
    pythons = {"oxiray": Path(os.path.abspath(sys.executable)), "ray": Path(os.path.abspath(arguments.ray_python))}
    facts = machine()
    with sync_playwright() as playwright, tempfile.TemporaryDirectory(prefix="oxb-") as folder:
        browser = playwright.chromium.launch(executable_path=polite(Path(folder)), args=["--no-sandbox", "--disable-dev-shm-usage"])
        facts += [f"- Chromium {browser.version}, in time that nobody else wants (SCHED_IDLE): it would be on its reader's machine", f"- Ray {version(pythons['ray'])}"]
        facts += [f"- {arguments.rounds} rounds each, medians; each load without a cache"]
        parts = {
            "A head without work": comparison(browser, pythons, arguments.rounds),
            f"A head through which {BATCHES * BATCH:,} tasks run, its page's list of tasks open or not": loop(browser, pythons["oxiray"], arguments.rounds),
            "Oxiray's page over much": much(browser),
        }
        browser.close()
    document = ["# Oxiray's page beside Ray's dashboard", "", "Written by `make bench-pages`.", "", *facts, ""]
    for title, table in parts.items():
        document += [f"## {title}", "", *table, ""]
    print("\n".join(document))
    if arguments.write:
        arguments.write.write_text("\n".join(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
