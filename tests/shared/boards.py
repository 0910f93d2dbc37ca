"""The page of a cluster that has work of every kind: for tests that look at it with a browser."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nvml
from homes import Home, free_port

CHROMIUM = "/usr/bin/chromium"
GPU = "NVIDIA H100 80GB HBM3|GPU-{slot}||85899345920|{used}|||{busy}\n"
#: A task whose name would do harm where it became markup.
HOSTILE = "<script>window.harmed=1</script><img src=x onerror='window.harmed=1'>"
PROGRAM = f"""
import sys, time, ray
from oxiray.train._told import Told
ray.init("auto", namespace="page", logging_level="ERROR")
run = Told("falls")
run.report(0, {{"loss": 0.5}})

@ray.remote(num_gpus=1, num_cpus=0.5)
def train(steps):
    time.sleep(steps)

@ray.remote(num_gpus=0.5, num_cpus=0.25)
class Rollout:
    def play(self):
        for number in range(20_000):
            print("move", number)
        print("resigns", file=sys.stderr, flush=True)
        return 1

@ray.remote(num_cpus=0.1)
def load(shard):
    if shard == 3:
        raise ValueError(f"shard {{shard}} is not there")
    return shard

@ray.remote(num_gpus=2, num_cpus=0.5)
def evaluate():
    pass

actors = [Rollout.options(name=f"rollout-{{n}}").remote() for n in range(2)]
ray.get([actor.play.remote() for actor in actors])
short = [train.remote(0.2) for _ in range(3)]
ray.get(short)
long = train.remote(3600)
group = ray.util.placement_group([{{"GPU": 2}}], name="evaluation")
waits = [evaluate.remote() for _ in range(2)]
loads = [load.remote(shard) for shard in range(6)]
ray.get(load.options(name={HOSTILE!r}).remote(0))
kept = ray.put(b"x" * 5_000_000)
for number in range(40):
    print("line", number, flush=True)
print("all is under way", flush=True)
ray.get(long)
"""


class Board:
    """The page of a cluster."""

    def __init__(self, home: Home, answers: nvml.Answers) -> None:
        self.home, self.answers, self.port = home, answers, free_port()
        self._errors = ""
        self.say()

    def say(self, *errors: str) -> None:
        """What NVML says of four GPUs."""
        self._errors += "".join(f"{error}\n" for error in errors)
        use = [(61_000_000_000, 93), (40_000_000_000, 71), (0, 0), (0, 0)]
        devices = "".join(GPU.format(slot=slot, used=used, busy=busy) for slot, (used, busy) in enumerate(use))
        self.answers.write(devices + self._errors)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def session(self) -> Path:
        """The directory of the session."""
        (found,) = self.home.folder.glob("oxiray-*/session_*/session.json")
        return found.parent

    def token(self, name: str = "http-token") -> str:
        return (self.session() / name).read_text().strip()

    def answers_now(self) -> bool:
        """Whether the program that answers does."""
        try:
            with urllib.request.urlopen(f"{self.address}/api/healthz", timeout=5):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        """Kills that program, which its daemon starts again."""
        os.kill(int(json.loads((self.session() / "dashboard.json").read_text())["pid"]), signal.SIGKILL)

    def ask(self, path: str, body: object | None = None, token: str | None = None) -> Any:
        """What the page's API answers."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token or self.token()}", "Content-Type": "application/json"}
        asked = urllib.request.Request(f"{self.address}/ox/v1/{path}", data, headers)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.load(answer)

    def rows(self, kind: str) -> list[dict[str, Any]]:
        return list(self.ask(f"rows/{kind}")["rows"])


#: Opens the page at a place.
Opened = Callable[..., Any]


def pictures() -> Path | None:
    """Where pictures of the views go, where somebody wants them."""
    folder = os.environ.get("OXIRAY_TEST_PICTURES")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder) if folder else None


def settled(page: Any) -> None:
    """Waits until nothing is asked for any more that a view waits for."""
    end = time.monotonic() + 30
    while page.locator(".soon[role=status]").count() > 0:
        assert time.monotonic() < end, "the view does not come"
        page.wait_for_timeout(50)
