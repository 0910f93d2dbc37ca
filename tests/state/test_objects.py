"""Who refers to which object: `ray.util.state`, `oxiray list objects`, `oxiray summary objects`, `oxiray memory`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy
import pytest
import ray
from ray.util import state
from ray.util.state.common import ObjectState
from ray.util.state.exception import RayStateApiException

from commands import run
from watching import wait_until

MEBIBYTE = 1 << 20


@ray.remote
def holds(reference: list[Any], marker: str) -> None:
    while not Path(marker).exists():
        time.sleep(0.01)


@ray.remote
def quick(value: object = None) -> int:
    return 1


@ray.remote
class Idle:
    pass


def rows(reference: ray.ObjectRef[Any]) -> dict[str, ObjectState]:
    """Those of one object, by the type of the process."""
    return {row.type: row for row in state.get_objects(reference.hex())}


def test_what_the_driver_keeps_and_why(cluster: ray.RayContext) -> None:
    small, large = ray.put(b"x"), ray.put(numpy.zeros(MEBIBYTE, dtype=numpy.uint8))
    row = rows(small)["DRIVER"]
    assert isinstance(row, ObjectState)
    node = ray.nodes()[0]
    assert (row.object_id, row.pid, row.ip) == (small.hex(), os.getpid(), node["NodeManagerAddress"])
    assert (row.task_status, row.attempt_number, row.reference_type) == ("FINISHED", 1, "LOCAL_REFERENCE")
    assert (row.call_site, 0 < row.object_size < 1000) == ("disabled", True)
    assert MEBIBYTE <= rows(large)["DRIVER"].object_size < 2 * MEBIBYTE
    array = ray.get(large)
    assert rows(large)["DRIVER"].reference_type == "PINNED_IN_MEMORY"
    del array
    wait_until(lambda: rows(large)["DRIVER"].reference_type == "LOCAL_REFERENCE")
    outer = ray.put([small])
    inner_id = small.hex()
    del small
    assert [row.reference_type for row in state.get_objects(inner_id)] == ["CAPTURED_IN_OBJECT"]
    del outer
    wait_until(lambda: not state.get_objects(inner_id))
    actor = Idle.remote()
    wait_until(lambda: state.list_objects(filters=[("reference_type", "=", "ACTOR_HANDLE")]))
    del actor


def test_what_tasks_keep(cluster: ray.RayContext, tmp_path: Path) -> None:
    marker = tmp_path / "go"
    held = ray.put(b"held")
    busy = holds.remote([held], str(marker))
    behind = quick.remote(busy)
    wait_until(lambda: "WORKER" in rows(held))
    told = rows(held)
    assert (told["DRIVER"].reference_type, told["WORKER"].reference_type) == ("USED_BY_PENDING_TASK", "LOCAL_REFERENCE")
    assert told["WORKER"].task_status == "NIL"
    assert told["WORKER"].object_size == told["DRIVER"].object_size
    assert told["WORKER"].pid != os.getpid()
    pending = rows(busy)["DRIVER"]
    assert (pending.object_size, pending.task_status) == (-1, "SUBMITTED_TO_WORKER")
    assert (pending.reference_type, rows(behind)["DRIVER"].task_status) == ("USED_BY_PENDING_TASK", "PENDING_ARGS_AVAIL")
    marker.touch()
    ray.get([busy, behind])
    assert rows(behind)["DRIVER"].task_status == "FINISHED"


def test_filters_limits_and_wrong_questions(cluster: ray.RayContext) -> None:
    kept = [ray.put(number) for number in range(20)]
    assert len(state.list_objects(limit=5)) == 5
    found = state.list_objects(filters=[("object_id", "=", kept[0].hex()), ("pid", "=", os.getpid())])
    assert [row.object_id for row in found] == [kept[0].hex()]
    assert state.get_objects("00" * 28) == []
    with pytest.raises(RayStateApiException, match="their keys are object_id"):
        state.list_objects(filters=[("colour", "=", "red")])


def test_counts(cluster: ray.RayContext) -> None:
    kept = ray.put(numpy.zeros(3 * MEBIBYTE, dtype=numpy.uint8))
    told = state.summarize_objects()["cluster"]
    assert (told["summary_by"], told["callsite_enabled"]) == ("callsite", False)
    group = told["summary"]["disabled"]
    assert group["total_size_mb"] >= 3
    assert told["total_size_mb"] == group["total_size_mb"]
    assert group["total_objects"] == told["total_objects"] == sum(group["ref_type_counts"].values())
    assert group["total_num_nodes"] == 1
    del kept


def test_the_command_line_shows_the_same(cluster: ray.RayContext) -> None:
    address = f"--address={cluster.address_info['address']}"
    kept = ray.put(numpy.zeros(2 * MEBIBYTE, dtype=numpy.uint8))
    listed = json.loads(run("list", "objects", address, "--format=json", "--filter", f"object_id={kept.hex()}"))
    assert [row["pid"] for row in listed] == [os.getpid()]
    assert kept.hex() in run("get", "objects", kept.hex(), address)
    assert "total_size_mb: " in run("summary", "objects", address)
    memory = run("memory", address, "--units=MB")
    line = next(line for line in memory.splitlines() if kept.hex() in line)
    assert "2.09" in line
    assert "in memory" in line
    assert str(os.getpid()) in line
    assert "RAY_record_ref_creation_sites=1" in memory
    assert re.search("[0-9]+ references? made at disabled", run("memory", address, "--group-by=STACK_TRACE", "-n", "1"))
    assert run("memory", address, "--stats-only").startswith("object store of this machine: ")
    assert "possible values: PID, OBJECT_SIZE" in run("memory", address, "--sort-by=colour", check=False)


SITES = textwrap.dedent(
    """
    import json
    import ray
    from ray.util import state

    def makes():
        return ray.put(1)

    @ray.remote
    def task(refs):
        return len(state.get_objects(refs[0].hex())), [row.call_site for row in state.get_objects(refs[0].hex())]

    ray.init(num_cpus=1)
    ref = makes()
    result = task.remote([ref])
    print(json.dumps([ref.call_site(), result.call_site(), ray.get(result), list(state.summarize_objects()["cluster"]["summary"])]))
    """
)


def test_where_references_are_made_is_recorded_where_asked_for(tmp_path: Path) -> None:
    program = tmp_path / "sites.py"
    program.write_text(SITES)
    environment = {**os.environ, "RAY_record_ref_creation_sites": "1"}
    command = [sys.executable, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=50, env=environment)
    put, called, (count, seen), groups = json.loads(done.stdout.splitlines()[-1])
    assert put == f"(put object) | {program}:makes:7 | {program}:<module>:14"
    assert called == f"(task call) | {program}:<module>:15"
    assert (count, seen) == (2, [put, put]), "a borrowed reference has its owner's place"
    assert put in groups
