"""Many stored objects at once: they share files, and are read many at a time."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import ray
import settled
import spilled
from oxiray.exceptions import ObjectLostError

KIB = 1 << 10
#: Just above what travels inside of messages.
SIZE = 101 * KIB

KEEPS_MANY = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import numpy, ray
ray.init(num_cpus=1, object_store_memory=100 << 20)
kept = [ray.put(numpy.full({size}, number % 251, dtype=numpy.uint8)) for number in range({count})]
assert all(ray.get(reference)[-1] == number % 251 for number, reference in enumerate(kept))
print("kept", len(kept))
"""


def test_objects_of_middling_size_take_neither_a_descriptor_nor_a_mapping_each() -> None:
    program = KEEPS_MANY.format(size=SIZE, count=2500)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert "kept 2500" in done.stdout, done.stdout + done.stderr


def mappings() -> int:
    """How many pieces of memory files this process has mapped."""
    return Path("/proc/self/maps").read_text().count("memfd:oxiray-object")


def test_many_are_read_at_once_and_let_go_of(cluster) -> None:
    # Values that earlier tests still refer to keep their mappings.
    before = mappings()
    cluster(object_store_memory=400 << 20)
    references = [ray.put(numpy.full(SIZE, number % 251, dtype=numpy.uint8)) for number in range(1000)]
    # Some twice, some small, some too large to be asked for along with others.
    references += references[:3] + [ray.put("small"), ray.put(numpy.ones(40 << 20, dtype=numpy.uint8))]
    values = ray.get(references)
    assert all((value == number % 251).all() for number, value in enumerate(values[:1000]))
    assert [value[0] for value in values[1000:1003]] == [0, 1, 2]
    assert values[1003] == "small" and values[1004].sum() == 40 << 20
    assert all(value.ctypes.data % 64 == 0 for value in values[:1000]), "aligned, in place"
    assert mappings() - before <= 20
    del values, references
    gc.collect()
    assert settled.settle() == {}


def test_pins_that_were_asked_for_are_given_back_where_one_before_them_raises(cluster) -> None:
    cluster(object_store_memory=spilled.STORE)
    lost = ray.put(numpy.ones(spilled.SIZE, dtype=numpy.uint8))
    spilled.lose(lost)
    others = [ray.put(numpy.ones(SIZE, dtype=numpy.uint8)) for _ in range(100)]
    with pytest.raises(ObjectLostError):
        ray.get([lost, *others], timeout=60)
    assert ray.get(others[-1])[0] == 1
    del lost, others
    gc.collect()
    assert settled.settle() == {}


def test_memory_files_are_few_however_many_objects_lie_in_them(cluster) -> None:
    cluster(object_store_memory=400 << 20)
    # Other tests of this process may have files open, too.
    before = len(os.listdir("/proc/self/fd"))
    references = [ray.put(numpy.ones(SIZE, dtype=numpy.uint8)) for _ in range(1000)]
    assert spilled.store()["files"] <= 4
    assert len(os.listdir("/proc/self/fd")) < before + 20
    del references
