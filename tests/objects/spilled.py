"""What the tests of lost values share: a small store, and a hand on the files that it spilled to."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import numpy
import ray
from oxiray import _core, _session
from watching import wait_until

MIB = 1 << 20
#: Small enough that a few arrays of `SIZE` push older ones to disk.
STORE = 80 * MIB
SIZE = 15 * MIB


def store() -> dict[str, int]:
    """The store's figures."""
    return _core.cluster()["store"]


def filler() -> list[Any]:
    """References that fill the store, so that whatever else is in it and not being read lies on disk."""
    return [ray.put(numpy.zeros(SIZE, dtype=numpy.uint8)) for _ in range(STORE // SIZE + 1)]


def spilled_files() -> list[Path]:
    """The daemon's files on disk that have no name."""
    found = []
    for entry in Path(f"/proc/{_session._daemon_pid}/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if target.endswith("(deleted)") and "memfd" not in target:
            found.append(entry)
    return found


def places() -> dict[str, str]:
    """Where each object's bytes are, by its identifier."""
    return {entry["object"]: entry["place"] for entry in _core.holdings()[0]}


def spill(*references: Any) -> None:
    """Makes sure that these are on disk, and nothing is that is not referred to any more."""
    gc.collect()
    room = filler()
    fillers = {reference.hex() for reference in room}
    wait_until(lambda: all(places().get(reference.hex()) == "on disk" for reference in references))
    del room
    gc.collect()
    wait_until(lambda: fillers.isdisjoint(places()))


def damage() -> None:
    """Changes a byte of every object on disk, several of which share a file: what was spilled is lost."""
    files = spilled_files()
    assert files, "something is on disk"
    for file in files:
        with open(file, "r+b") as opened:
            for place in range(100, os.fstat(opened.fileno()).st_size, MIB):
                opened.seek(place)
                byte = opened.read(1)
                opened.seek(place)
                opened.write(bytes([byte[0] ^ 0xFF]))


def lose(*references: Any) -> None:
    """The stored bytes of these objects are lost."""
    spill(*references)
    damage()
