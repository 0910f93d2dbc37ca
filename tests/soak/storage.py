"""Objects of many times the store's size, spilled to a server that speaks S3 and read back, with the rates.

    tests/soak/storage.py --files 12 --disk

A file is 1 GiB of objects of 64 MiB. Every other one is put by this program, the rest is made by tasks. The server is killed in
the middle of the spilling and started again, and so is a worker; then everything is read back and compared. `--disk` does the
same with a folder in place of the server, to compare with.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy
import ray
from oxiray import _core

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "shared"))

from s3 import BUCKET, S3Server, serving
from watching import wait_until

MIB = 1 << 20
OBJECT = 64 * MIB
PER_FILE = 16
#: How long the server is away.
AWAY_S = 3.0


def content(number: int) -> Any:
    """The object of that number, which is like no other."""
    block = numpy.random.default_rng(number).integers(0, 256, MIB, dtype=numpy.uint8)
    return numpy.tile(block, OBJECT // MIB) ^ numpy.repeat(numpy.arange(OBJECT // MIB, dtype=numpy.uint8), MIB)


@ray.remote(max_retries=3)
def make(number: int) -> Any:
    return content(number)


@ray.remote
def pid() -> int:
    return os.getpid()


def away(server: S3Server) -> threading.Thread:
    """Kills the server, and has it started again a while later."""
    server.kill()
    again = threading.Timer(AWAY_S, server.start)
    again.start()
    return again


def write(files: int, server: S3Server | None) -> tuple[list[Any], float]:
    """Makes all objects. Returns them and the seconds, without those in which nothing but this program's arithmetic was done."""
    references: list[Any] = []
    took, again = 0.0, None
    for file in range(files):
        numbers = range(file * PER_FILE, (file + 1) * PER_FILE)
        values = (content(number) for number in numbers) if file % 2 == 0 else None
        begun = time.perf_counter()
        if values is not None:
            for value in values:
                before = time.perf_counter()
                references.append(ray.put(value))
                took += time.perf_counter() - before
        else:
            made = [make.remote(number) for number in numbers]
            if file == files // 2 | 1:
                os.kill(ray.get(pid.remote()), signal.SIGKILL)
            ray.wait(made, num_returns=len(made), fetch_local=False)
            references += made
            took += time.perf_counter() - begun
        if file == files // 2 - 1 and server is not None:
            wait_until(lambda: _core.cluster()["store"]["spilled"] > 0)
            again = away(server)
        print(f"file {file + 1} of {files}: {_core.cluster()['store']['spilled'] / MIB:.0f} MiB are spilled", flush=True)
    if again is not None:
        again.join()
    return references, took


def read(references: list[Any]) -> float:
    """Compares all objects with what they were. Returns the seconds that bringing them took."""
    took = 0.0
    for number, reference in enumerate(references):
        begun = time.perf_counter()
        value = ray.get(reference)
        took += time.perf_counter() - begun
        if not numpy.array_equal(value, content(number)):
            raise AssertionError(f"object {number} is not what it was")
        del value
    return took


def run(files: int, place: str, server: S3Server | None) -> dict[str, Any]:
    ray.init(num_cpus=2, object_store_memory=1 << 30, object_spilling_directory=place, log_to_driver=False)
    try:
        references, writing = write(files, server)
        spilled = _core.cluster()["store"]["spilled"]
        reading = read(references)
    finally:
        ray.shutdown()
    mib = files * PER_FILE * OBJECT / MIB
    return {
        "to": place, "MiB": mib, "spilled MiB": round(spilled / MIB), "written MiB/s": round(mib / writing),
        "read MiB/s": round(mib / reading), "written s": round(writing, 1), "read s": round(reading, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=12, help="how many files of 1 GiB")
    parser.add_argument("--disk", action="store_true", help="to a folder as well")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oxiray-storage-") as folder:
        if arguments.disk:
            print(json.dumps(run(arguments.files, os.path.join(folder, "spilled"), None)), flush=True)
        server_folder = Path(folder, "server")
        server_folder.mkdir()
        with serving(server_folder, volume_mib=1024) as server:
            os.environ.update(server.variables)
            print(json.dumps(run(arguments.files, f"s3://{BUCKET}/soak", server)), flush=True)
            wait_until(lambda: not server.keys("soak"))
            print("nothing is left there")


if __name__ == "__main__":
    main()
