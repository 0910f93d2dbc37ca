"""Clusters that grow: a head and its autoscaler as the command line starts them, and what is seen of them over time."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from homes import Home

#: How long something may take on a slow machine, in seconds.
LIMIT = 60.0
#: How long a program may take, in seconds: less than its test has, so that there is time to look why it did not end.
PROGRAM_LIMIT = 90.0


class Growing(Home):
    """A head without accelerators that grows by these groups, and a time line of what was seen."""

    def __init__(
        self,
        folder: Path,
        groups: list[dict[str, Any]],
        num_cpus: float = 1,
        slurm: dict[str, Any] | None = None,
        **variables: str,
    ) -> None:
        super().__init__(folder)
        self.environment.update(variables)
        self.groups = folder / "groups.yaml"
        self.groups.write_text(json.dumps({"groups": groups} | ({} if slurm is None else {"slurm": slurm})))
        self.cpus = num_cpus
        self.begun = time.monotonic()
        self.line: list[str] = []
        self.start()

    def start(self) -> None:
        """Starts the head; with `--autoscale` the autoscaler too."""
        words = ["start", "--head", "--port", str(self.port), "--num-cpus", str(self.cpus)]
        started = self.oxiray(*words, "--autoscale", str(self.groups))
        assert started.returncode == 0, started.stderr

    def note(self, what: str) -> None:
        """Adds to the time line."""
        self.line.append(f"{time.monotonic() - self.begun:7.2f} s  {what}")

    def status(self) -> dict[str, Any]:
        told = self.oxiray("status", "--json")
        assert told.returncode == 0, told.stderr
        report: dict[str, Any] = json.loads(told.stdout)
        return report

    def nodes(self, group: str | None = None) -> list[str]:
        """The nodes of a group, or of all groups, that are alive."""
        key = "ray.io/node-group"
        of = [node for node in self.status()["nodes"] if node["alive"] and key in node["labels"]]
        return [node["node_id"] for node in of if group is None or node["labels"][key] == group]

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Waits for what must come."""
        end = time.monotonic() + LIMIT
        while not holds():
            assert time.monotonic() < end, f"{what}: not within {LIMIT} s\n{self.log()}\n{self.oxiray('status').stdout}"
        self.note(what)

    def stays(self, holds: Callable[[], bool], what: str, seconds: float = 2.0) -> None:
        """Looks that something stays as it is."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert holds(), f"{what}\n{self.log()}"
        self.note(what)

    def autoscaler(self) -> int:
        """The process that works, not the one that keeps it."""
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().decode().split("\0")
                if words[1:3] == ["autoscaler", "run"] and str(self.groups) in words and "--detached" not in words:
                    return int(folder.name)
        raise AssertionError("no autoscaler runs")

    def log(self) -> str:
        """What the autoscaler says."""
        return "\n".join(path.read_text() for path in self.folder.glob("oxiray-*/logs/session_*/autoscaler.log"))

    def program(self, text: str) -> str:
        """What a program prints that is run to its end; one that does not end shows where it stands."""
        command = [sys.executable, "-X", "faulthandler", "-c", text]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment
        ) as ran:
            try:
                told, errors = ran.communicate(timeout=PROGRAM_LIMIT)
            except subprocess.TimeoutExpired:
                try:
                    asked = (["status"], ["list", "actors"], ["list", "placement-groups"])
                    seen = "\n".join(self.oxiray(*words).stdout for words in asked)
                finally:
                    # It prints its stack and ends.
                    ran.send_signal(signal.SIGABRT)
                told, errors = ran.communicate()
                why = f"the program did not end within {PROGRAM_LIMIT} s"
                raise AssertionError(f"{why}\n{told}\n{errors}\n{seen}\n{self.log()}") from None
        assert ran.returncode == 0, f"{errors}\n{self.log()}"
        return told

    def begin(self, text: str) -> subprocess.Popen[str]:
        """Starts a program there."""
        return subprocess.Popen(
            [sys.executable, "-c", text], env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def stop(self) -> None:
        self.oxiray("stop", "--force")
