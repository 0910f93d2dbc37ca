"""Tasks and methods that tell where they are by making files, and go on when others made theirs."""

from __future__ import annotations

import time
from pathlib import Path

import ray


def _touch_and_wait(begun: Path, end: Path) -> str:
    begun.touch()
    while not end.exists():
        time.sleep(0.002)
    return "ended"


touch_and_wait = ray.remote(_touch_and_wait)


@ray.remote
def touch(path: Path, *_: object) -> str:
    path.touch()
    return "touched"


@ray.remote
def echo(value: object) -> object:
    return value


@ray.remote
class Methods:
    def touch_and_wait(self, begun: Path, end: Path) -> str:
        return _touch_and_wait(begun, end)

    def until_cancelled(self, begun: Path) -> str:
        begun.touch()
        while not ray.get_runtime_context().is_canceled():
            time.sleep(0.002)
        return "saw it"

    def raise_when_cancelled(self, begun: Path) -> None:
        begun.touch()
        while not ray.get_runtime_context().is_canceled():
            time.sleep(0.002)
        raise KeyError("cleaned up")

    def is_canceled(self) -> bool:
        return ray.get_runtime_context().is_canceled()
