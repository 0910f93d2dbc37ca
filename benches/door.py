"""What the specification bounds in time: the door under a thousand wrong tokens, who comes back after a death, and what `oxiray top` takes.

`python benches/door.py` starts clusters of its own with the `oxiray` that is installed, and prints one line of JSON. Nothing is judged here:
on a machine that does other work every figure is larger.

- `right_token_ms`: how long a request with the right token takes while a thousand with wrong ones wait (specified: 50 ms).
- `dashboard_back_s`: from the death of the dashboard's process until it answers again (specified: 2 s).
- `page_back_s`: from the start of the next head, after the first was killed, until its dashboard answers (specified: 2 s).
- `top_cpu_ms`: processor time of `oxiray top` for each of its refreshes, once a second (specified: 20 ms).
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import select
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from contextlib import ExitStack, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "shared"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "dashboard"))
from dashboard_client import Dashboard, started  # noqa: E402  (they lie with the tests, not in a package)
from oxiray._cli import native_binary  # noqa: E402
from watching import alive, wait_until  # noqa: E402

STRANGERS = 1_000
VERSION = "/api/version"


def right_token_ms(dashboard: Dashboard, asked: int) -> dict[str, float]:
    """With that many wrong ones waiting all the time."""
    wrong = f"GET {VERSION} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {'w' * 32}\r\n\r\n".encode()
    times = []
    while len(times) < asked:
        with ExitStack() as stack:
            strangers = [stack.enter_context(dashboard.connect()) for _ in range(STRANGERS)]
            for stranger in strangers:
                with suppress(OSError):
                    stranger.sendall(wrong)
            for _ in range(10):
                began = time.perf_counter()
                assert dashboard.ask("GET", VERSION).status == 200
                times.append((time.perf_counter() - began) * 1e3)
    return {"median": round(statistics.median(times), 1), "largest": round(max(times), 1)}


def answers(dashboard: Dashboard) -> bool:
    with suppress(OSError, IndexError, ValueError):
        return dashboard.ask("GET", VERSION).status == 200
    return False


def dashboard_back_s(dashboard: Dashboard) -> float:
    before = dashboard.pid()
    os.kill(before, signal.SIGKILL)
    began = time.perf_counter()
    wait_until(lambda: not alive(before) and answers(dashboard))
    return round(time.perf_counter() - began, 2)


def page_back_s(dashboard: Dashboard) -> float:
    daemon = json.loads((dashboard.session / "session.json").read_text())["pid"]
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: not alive(daemon) and not answers(dashboard))
    began = time.perf_counter()
    done = dashboard.home.oxiray(
        "start", "--head", f"--port={dashboard.home.port}", "--num-cpus=2", "--include-dashboard=true", f"--dashboard-port={dashboard.port}"
    )
    assert done.returncode == 0, done.stderr
    wait_until(lambda: answers(dashboard))
    return round(time.perf_counter() - began, 2)


def top_cpu_ms(dashboard: Dashboard, seconds: int) -> float:
    """Over that time, in which it refreshes once a second."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 200, 0, 0))
    address = json.loads((dashboard.session / "session.json").read_text())["address"]
    command = [str(native_binary()), "top", f"--address={address}"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env={**dashboard.home.environment, "TERM": "xterm"}) as top:
        os.close(theirs)

        def used_s() -> float:
            fields = Path(f"/proc/{top.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        def draw(until: float) -> None:
            while (left := until - time.monotonic()) > 0:
                if select.select([ours], [], [], left)[0]:
                    os.read(ours, 1 << 16)

        draw(time.monotonic() + 3)
        before = used_s()
        draw(time.monotonic() + seconds)
        used = used_s() - before
        os.write(ours, b"q")
        draw(time.monotonic() + 1)
    os.close(ours)
    return round(used / seconds * 1e3, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--asked", type=int, default=100, help="requests with the right token")
    parser.add_argument("--seconds", type=int, default=20, help="for how long `oxiray top` is looked at")
    given = parser.parse_args()
    socket.setdefaulttimeout(60)
    with tempfile.TemporaryDirectory(prefix="oxi-") as folder:
        dashboard = started(Path(folder))
        try:
            wait_until(lambda: answers(dashboard))
            figures = {
                "right_token_ms": right_token_ms(dashboard, given.asked),
                "top_cpu_ms": top_cpu_ms(dashboard, given.seconds),
                "dashboard_back_s": dashboard_back_s(dashboard),
                "page_back_s": page_back_s(dashboard),
            }
        finally:
            dashboard.home.oxiray("stop", "--force")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
