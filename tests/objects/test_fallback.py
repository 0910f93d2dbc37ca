"""Objects that memory has no room for, since everything in it is read or they are too large: they go to disk."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest
import ray
from ray.exceptions import OutOfDiskError

from spilled import MIB, SIZE, STORE, spilled_files, store
from watching import wait_until


@ray.remote
def make(size: int, value: int) -> numpy.ndarray:
    return numpy.full(size, value, dtype=numpy.uint8)


@ray.remote
def total(array: numpy.ndarray) -> tuple[int, bool]:
    return int(array.sum(dtype=numpy.int64)), array.flags.writeable


def read_everything() -> list[numpy.ndarray]:
    """Arrays that take the whole store as long as they are kept."""
    return ray.get([ray.put(numpy.zeros(SIZE, dtype=numpy.uint8)) for _ in range(STORE // SIZE)])


def test_what_is_put_while_everything_is_read_goes_to_disk_and_is_read_there(cluster) -> None:
    cluster(object_store_memory=STORE)
    reading = read_everything()
    kept = ray.put(numpy.full(SIZE, 7, dtype=numpy.uint8))
    assert store()["spilled"] >= SIZE
    began = time.monotonic()
    more = [ray.put(numpy.full(SIZE, value, dtype=numpy.uint8)) for value in range(4)]
    assert time.monotonic() - began < 15, "who comes later does not wait as well"
    assert store()["used"] <= STORE
    array = ray.get(kept)
    assert (array == 7).all() and not array.flags.writeable
    assert [int(each[0]) for each in ray.get(more)] == list(range(4))
    assert ray.get(total.remote(kept), timeout=30) == (7 * SIZE, False)
    del reading
    gc.collect()
    assert ray.get(ray.put(numpy.ones(SIZE, dtype=numpy.uint8)))[0] == 1
    del kept, more, array
    gc.collect()
    wait_until(lambda: store()["objects"] == 0 and store()["spilled"] == 0)
    assert not spilled_files()


def test_results_of_tasks_do_too(cluster) -> None:
    cluster(object_store_memory=STORE)
    reading = read_everything()
    assert ray.get(total.remote(make.remote(SIZE, 3)), timeout=30) == (3 * SIZE, False)
    assert len(reading) == STORE // SIZE


def test_what_is_larger_than_the_store_is_on_disk_from_the_start(cluster) -> None:
    cluster(object_store_memory=STORE)
    array = ray.get(ray.put(numpy.full(2 * STORE, 5, dtype=numpy.uint8)), timeout=60)
    assert array.nbytes == 2 * STORE
    assert (array[:: 1 << 12] == 5).all()
    assert store()["used"] == 0
    assert ray.get(total.remote(make.remote(2 * STORE, 1)), timeout=60) == (2 * STORE, False)
    del array
    gc.collect()
    wait_until(lambda: store()["objects"] == 0 and store()["spilled"] == 0)


def test_a_disk_that_is_too_full_refuses_and_says_why(cluster, monkeypatch) -> None:
    monkeypatch.setenv("RAY_local_fs_capacity_threshold", "0.001")
    cluster(object_store_memory=STORE)
    with pytest.raises(OutOfDiskError, match=r"RAY_local_fs_capacity_threshold.*spill"):
        ray.put(numpy.zeros(2 * STORE, dtype=numpy.uint8))
    reading = read_everything()
    with pytest.raises(OutOfDiskError, match="may get 0.1 % full"):
        ray.put(numpy.zeros(SIZE, dtype=numpy.uint8))
    del reading
    gc.collect()
    assert ray.get(ray.put(numpy.ones(SIZE, dtype=numpy.uint8)))[0] == 1
    assert store()["objects"] == 0 or not spilled_files()


def test_a_threshold_that_is_no_share_is_refused(cluster, monkeypatch) -> None:
    monkeypatch.setenv("RAY_local_fs_capacity_threshold", "95")
    with pytest.raises((ValueError, ConnectionError, RuntimeError), match="RAY_local_fs_capacity_threshold"):
        cluster(object_store_memory=STORE)


KILLED = f"""
import numpy, os, ray, sys
ray.init(num_cpus=1, object_store_memory={STORE}, object_spilling_directory=sys.argv[1])
kept = ray.put(numpy.ones({2 * STORE}, dtype=numpy.uint8))
from oxiray import _session
print(_session._daemon_pid, flush=True)
sys.stdin.read()
"""


def test_nothing_is_left_on_disk_when_everybody_is_killed(tmp_path: Path) -> None:
    spills = tmp_path / "spills"
    command = [sys.executable, "-c", KILLED, str(spills)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        daemon = int(program.stdout.readline())
        assert list(spills.iterdir()) == [], "files have no name"
        before = os.statvfs(spills).f_bfree
        os.kill(daemon, signal.SIGKILL)
        program.kill()
    wait_until(lambda: (os.statvfs(spills).f_bfree - before) * os.statvfs(spills).f_frsize > MIB, timeout=20)
    assert list(spills.iterdir()) == []
