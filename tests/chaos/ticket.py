"""One piece of the load as its driver tells of it: in a file that is there whatever becomes of the driver."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import Any


class Wrong(Exception):
    """A result is not what it must be."""


class Ledger:
    """What a driver did, line by line; each line is written before the driver goes on."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def write(self, what: str, **more: Any) -> None:
        """Adds a line."""
        os.write(self._file, (json.dumps({"what": what, "at": time.monotonic(), **more}) + "\n").encode())


def lines_of(path: Path) -> list[dict[str, Any]]:
    """What a driver told; a last line that a kill cut short is passed over."""
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


class Ticket:
    """One piece of the load: its name, its random numbers, and the errors it legally ended with."""

    def __init__(self, name: str, chance: random.Random, heads_die: bool) -> None:
        self.name, self.chance, self.heads_die = name, chance, heads_die
        self.legal: list[str] = []

    def key(self, index: int) -> str:
        """The name of one of its tasks or actors in diaries."""
        return f"{self.name}/{index}"

    def number(self) -> int:
        """An input."""
        return self.chance.randrange(1 << 20)

    def failed_legally(self, error: Exception) -> None:
        """Counts an error that is among the legal ones."""
        self.legal.append(type(error).__name__)
