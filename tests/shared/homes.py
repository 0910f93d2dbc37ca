"""Clusters that are started by the command line, each in a folder of its own as on a machine of its own."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from oxiray._cli import native_binary

#: What every program begins with.
PREAMBLE = """
import os, sys, time
import ray
from ray.experimental import internal_kv as kv
ray.init(address="auto", namespace="kept", log_to_driver=False)

@ray.remote(num_cpus=0.1)
class Counter:
    def __init__(self, first):
        self.count = first
    def next(self):
        self.count += 1
        return self.count
    def pid(self):
        return os.getpid()
    def start(self):
        import subprocess
        return subprocess.Popen(["sleep", "1000"], start_new_session=True).pid
"""


def free_port() -> int:
    """A port of the loopback network that nobody listens at.

    It lies below those that the kernel hands out, so that nobody has it by chance while a killed head is away.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as listening, suppress(OSError):
            listening.bind(("127.0.0.1", port))
            return port


class Home:
    """A folder for sessions, a port for its head, and the commands and programs that run there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        # The native command knows its Python from the `oxiray` command, whose place these tests take.
        self.environment = {**os.environ, "OXIRAY_TMPDIR": str(folder), "OXIRAY_INTERPRETER": sys.executable}

    def oxiray(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [str(native_binary()), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=self.environment, timeout=60)

    def program(self, text: str) -> str:
        """What a driver prints that runs `text`, with `kv` and the class `Counter` at hand."""
        command = [sys.executable, "-c", PREAMBLE + text]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, env=self.environment, timeout=60)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout
