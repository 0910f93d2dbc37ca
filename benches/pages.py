"""Oxiray's page beside Ray's dashboard, in one browser on one machine: what serves it, and what comes before something is seen.

Prints a table and, with `--write`, keeps it as a document. Both run a head without work.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "shared"))
from boards import CHROMIUM  # noqa: E402  (it lies with the tests, not in a package)
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

    def end(self) -> None:
        """Stops it."""
        try:
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


def main() -> int:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ray-python", required=True, type=Path, help="an environment with ray[default]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    # Not resolved: the environment is the folder that the link lies in.
    pythons = {"oxiray": Path(os.path.abspath(sys.executable)), "ray": Path(os.path.abspath(arguments.ray_python))}
    facts, found = machine(), {who: {} for who in pythons}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        facts.append(f"- Chromium {browser.version}, {arguments.rounds} loads without a cache each, medians")
        for who, python in pythons.items():
            with head(who, python) as one:
                rounds = [loaded(browser, one.address()) for _ in range(arguments.rounds)]
                found[who] = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]} | one.processes()
                print(f"  {who}: {found[who]}", flush=True)
        browser.close()
    table = ["| | Oxiray | Ray | Ray's by ours |", "|---|---:|---:|---:|"]
    for key, name, form in ROWS:
        ours, theirs = found["oxiray"][key], found["ray"][key]
        table.append(f"| {name} | {form.format(ours)} | {form.format(theirs)} | {f'{theirs / ours:,.1f}×' if ours else '—'} |")
    document = ["# Oxiray's page beside Ray's dashboard", "", "Written by `make bench-pages`.", "", *facts, "", *table, ""]
    print("\n".join(["", *table]))
    if arguments.write:
        arguments.write.write_text("\n".join(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
