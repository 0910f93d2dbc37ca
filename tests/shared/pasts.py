"""Histories of clusters larger than a test could run, in the recorder's own format (docs/formats/history.md)."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from homes import free_port
from oxiray._cli import native_binary

#: When what is told of began, in milliseconds since 1970.
BEGUN_MS = 1_800_000_000_000
JOB = "01000000"
SESSION = "session_1800000000_1_00000000"
NAMES = ("train", "evaluate", "tokenize", "rollout", "shuffle", "checkpoint", "embed", "rank")
#: How many bytes of lines are packed into one member.
_MEMBER_BYTES = 1 << 20


def node_id(number: int) -> str:
    return f"{0x9E3779B97F4A7C15 * (number + 1) % (1 << 224):056x}"


def _line(at_ms: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"at_ms": at_ms, "kind": kind, **fields}


def _row(at_ms: int, kind: str, key: str, cells: dict[str, Any], rank: int = 0) -> dict[str, Any]:
    return _line(at_ms, "row", list=kind, key=key, rank=rank, cells=cells)


def _begin(job: str) -> dict[str, Any]:
    begin = {"schema": 1, "version": "0.1.0", "cluster": "192.0.2.2:6379", "session": SESSION, "job": job, "how": "started", "nodes": []}
    return _line(BEGUN_MS, "begin", begin=begin)


def _node(number: int, devices: int) -> dict[str, Any]:
    has = {"CPU": 64.0, "memory": 5e11, **({"GPU": float(devices)} if devices else {})}
    id, ip = node_id(number), f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
    cells = {
        "address": ip, "alive": True, "available": {**has, "CPU": float(number % 64)}, "death": "", "devices": [], "draining": None,
        "head": number == 0, "hostname": f"host-{number}", "labels": {"ray.io/node-id": id}, "name": f"host-{number}", "node_id": id,
        "resources": has, "socket": "", "store_used": number << 20,
    }  # fmt: skip
    return _row(BEGUN_MS, "nodes", id, cells)


def _task(number: int, at_ms: int) -> dict[str, Any]:
    id, failed = f"{number * 0x9E3779B97F4A7C15 % (1 << 96):024x}ffffffffffffffff{JOB}"[-48:], number % 1000 == 999
    where = number % 16
    cells = {
        "actor_id": None, "attempt": 0, "created_ms": at_ms - 40, "ended_ms": at_ms + 25, "error": "ValueError" if failed else None,
        "function": f"pipeline.{NAMES[number % 8]}", "group": None, "job_id": JOB, "message": f"shard {number} is not there" if failed else None,
        "name": NAMES[number % 8], "node_id": node_id(where), "node_name": f"host-{where}", "parent_task_id": None, "pid": 20_000 + number % 64,
        "resources": {"CPU": 1.0}, "started_ms": at_ms, "state": "FAILED" if failed else "FINISHED", "task_id": id, "type": "NORMAL_TASK",
        "worker_id": f"{number % 64:056x}",
    }  # fmt: skip
    return _row(at_ms + 25, "tasks", f"{id}:0", cells, rank=at_ms * 1000)


def grants(count: int, nodes: int, devices: int, span_ms: int) -> Iterator[dict[str, Any]]:
    """The entries of so many grants of whole devices, two for each, in the order of their times: one after the other on each device."""
    places = nodes * devices
    rounds = -(-count // places)
    step = span_ms // rounds
    number = 0
    for turn in range(rounds):
        for begins in (True, False):
            for place in range(min(places, count - turn * places)):
                number += 1
                # A device is held for nine tenths of each step, and others begin a little later.
                at_ms = BEGUN_MS + turn * step + (place % 8) + (0 if begins else step * 9 // 10)
                grant, slot = turn * places + place + 1, place % devices
                part = {"resource": "GPU", "slot": slot, "id": str(slot), "grant": grant, "share": 10_000, "holder": "task", "since_ms": 0}
                event = {
                    "number": number, "at_ms": at_ms, "event": "device_granted" if begins else "device_free", "node": node_id(place // devices),
                    "device": part, "job": JOB, "name": NAMES[(turn + place) % 8], "pid": 20_000 + place,
                }  # fmt: skip
                yield _line(at_ms, "event", event=event, origin="1f")


def _job(until_ms: int) -> dict[str, Any]:
    cells = {
        "ended_ms": until_ms, "entrypoint": "python pipeline.py", "error": None, "exit_code": 0, "ip": "10.0.0.0", "job_id": JOB, "message": None,
        "metadata": {}, "node_id": node_id(0), "node_name": "host-0", "pid": 19_999, "started_ms": BEGUN_MS, "state": "SUCCEEDED", "submission": "large",
    }  # fmt: skip
    return _row(until_ms, "jobs", "large", cells)


def _write(path: Path, lines: Iterator[dict[str, Any]]) -> None:
    """Lines, in members as the recorder packs them."""
    with path.open("wb") as file:
        member: list[str] = []
        size = 0
        for line in lines:
            text = json.dumps(line, separators=(",", ":")) + "\n"
            member.append(text)
            size += len(text)
            if size >= _MEMBER_BYTES:
                file.write(gzip.compress("".join(member).encode(), compresslevel=1))
                member, size = [], 0
        file.write(gzip.compress("".join(member).encode(), compresslevel=1))


def write(folder: Path, *, tasks: int = 0, nodes: int = 16, devices: int = 0, held: int = 0, span_ms: int = 600_000) -> Path:
    """A history of a job that ran so many tasks on so many nodes, whose devices were granted so many times."""
    session, until_ms = folder / SESSION, BEGUN_MS + span_ms
    session.mkdir(parents=True)

    def cluster() -> Iterator[dict[str, Any]]:
        yield _begin("cluster")
        yield from (_node(number, devices) for number in range(nodes))
        yield _job(until_ms)

    def job() -> Iterator[dict[str, Any]]:
        yield _begin(JOB)
        if held:
            yield from grants(held, nodes, devices, span_ms)
        yield from (_task(number, BEGUN_MS + number * span_ms // tasks) for number in range(tasks))
        yield _job(until_ms)

    _write(session / "cluster.jsonl.gz", cluster())
    _write(session / f"{JOB}.jsonl.gz", job())
    index = {
        "schema": 1, "version": "0.1.0", "session": SESSION, "cluster": "192.0.2.2:6379", "begun_ms": BEGUN_MS, "until_ms": until_ms, "origin": "1f",
        "number": 2 * held, "jobs": {JOB: {"submission": "large", "state": "SUCCEEDED", "started_ms": BEGUN_MS, "ended_ms": until_ms}}, "cuts": [],
    }  # fmt: skip
    (session / "index.json").write_text(json.dumps(index))
    return folder


class Shown:
    """The page over a history."""

    def __init__(self, folder: Path) -> None:
        environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
        words = [str(native_binary()), "dashboard", f"--history={folder}", f"--port={free_port()}"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        self.link = self.process.stdout.readline().strip()
        assert self.link.startswith("http://"), f"`{' '.join(words)}` printed no link but {said!r}"

    @property
    def address(self) -> str:
        return self.link.partition("#")[0]

    def peak_mb(self) -> float:
        """The most memory that the program had at once."""
        return peak_mb(self.process.pid)

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)


def peak_mb(pid: int) -> float:
    """The most memory that a process had at once."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) / 1024
