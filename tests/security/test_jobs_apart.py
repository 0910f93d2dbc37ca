"""Processes of one job are given no file of another job: what they do to what they read reaches nobody else (STORE-6)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import ray
from oxiray import _core
from oxiray._cli import native_binary

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="opening /proc/self/map_files needs root")

NUMBERS = 200_000

#: Another job: it reads an array of the first one, and writes over the file that it was given, as only its own copy allows.
OTHER = """
import json, os
import numpy
import ray

def opened_for_writing(array):
    start = array.__array_interface__["data"][0]
    for line in open("/proc/self/maps"):
        span, _, offset = line.split()[:3]
        begins, ends = (int(end, 16) for end in span.split("-"))
        if begins <= start < ends:
            file = os.open(f"/proc/self/map_files/{span}", os.O_RDWR)
            return file, int(offset, 16) + start - begins
    raise AssertionError("the array is mapped")

ray.init(address="auto", namespace="apart")
keeper = ray.get_actor("keeper")
[reference] = ray.get(keeper.references.remote())
array = ray.get(reference)
before = int(array.sum())
file, offset = opened_for_writing(array)
os.pwrite(file, bytes(array.nbytes), offset)
own = numpy.ones(200_000)
print(json.dumps({
    "before": before,
    "after": int(array.sum()),
    "again": int(ray.get(reference).sum()),
    "answer": int(ray.get(keeper.add_up.remote(own)).sum()),
}))
"""


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cluster that several programs join, for the length of a test."""
    folder = tempfile.mkdtemp(prefix="oxi-")
    monkeypatch.setenv("OXIRAY_TMPDIR", folder)
    ray.shutdown()
    command = [str(native_binary()), "start", "--head", "--num-cpus=2"]
    subprocess.run(command, check=True, capture_output=True)
    yield
    ray.shutdown()
    subprocess.run([str(native_binary()), "stop"], check=True, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


@ray.remote
class Keeper:
    def __init__(self) -> None:
        self.kept: list[Any] = []

    def keep(self, references: list[Any]) -> None:
        self.kept = references

    def references(self) -> list[Any]:
        return self.kept

    def add_up(self, array: Any) -> Any:
        return array + 1


def stored() -> int:
    return int(_core.cluster()["store"]["objects"])


def test_another_job_reads_a_copy_and_changes_nothing_of_the_object(home: None) -> None:
    ray.init(address="auto", namespace="apart")
    keeper = Keeper.options(name="keeper", lifetime="detached").remote()
    array = numpy.arange(NUMBERS)
    reference = ray.put(array)
    ray.get(keeper.keep.remote([reference]))
    mapped = ray.get(reference)
    other = subprocess.run([sys.executable, "-c", OTHER], capture_output=True, text=True, timeout=100)
    assert other.returncode == 0, other.stderr
    told = json.loads(other.stdout.splitlines()[-1])
    total = int(array.sum())
    assert told == {"before": total, "after": 0, "again": 0, "answer": 2 * NUMBERS}
    assert (mapped == array).all() and (ray.get(reference) == array).all()
    # The copies of the other job, and its own objects, go with it.
    deadline = time.monotonic() + 30
    while stored() != 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert stored() == 1
