"""Objects that are spilled to a server that speaks S3, which is killed among others."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest
import ray
from oxiray import _cli, _core, _session
from s3 import BUCKET, S3Server, serving
from watching import alive, wait_until

MIB = 1 << 20
STORE = 80 * MIB
SIZE = 10 * MIB
#: More than memory has room for, and all small enough to be several in a file.
COUNT = 20


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with serving(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def cluster(s3: S3Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[str]:
    """A cluster that spills below the prefix of this test."""
    prefix = request.node.name.partition("[")[0]
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)
    ray.shutdown()
    ray.init(
        num_cpus=2, object_store_memory=STORE, log_to_driver=False, object_spilling_directory=f"s3://{BUCKET}/{prefix}"
    )
    yield prefix
    ray.shutdown()
    wait_until(lambda: not s3.keys(prefix))


def array(number: int) -> Any:
    return numpy.random.default_rng(number).integers(0, 256, SIZE, dtype=numpy.uint8)


def programs() -> list[int]:
    """The daemon's processes that speak to the storage."""
    children = Path(f"/proc/{_session._daemon_pid}/task").glob("*/children")
    found = [int(pid) for path in children for pid in path.read_text().split()]
    return [pid for pid in found if b"oxiray-storage" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def check(references: list[Any]) -> None:
    for number, reference in enumerate(references):
        assert numpy.array_equal(ray.get(reference), array(number)), f"object {number}"


def test_objects_go_there_come_back_and_go(cluster: str, s3: S3Server) -> None:
    references = [ray.put(array(number)) for number in range(COUNT)]
    stored = s3.keys(cluster)
    assert 2 <= len(stored) < COUNT, "several objects share a file, and one marks the session"
    assert all(key.startswith(f"{cluster}/oxiray/") for key in stored)
    check(references)
    check(references)

    @ray.remote
    def total(value: Any) -> int:
        return int(value.sum())

    assert ray.get([total.remote(one) for one in references]) == [int(array(number).sum()) for number in range(COUNT)]
    del references
    gc.collect()
    wait_until(lambda: len(s3.keys(cluster)) == 1)


def test_the_program_is_started_again_when_it_is_killed(cluster: str) -> None:
    references = []
    for number in range(COUNT):
        references.append(ray.put(array(number)))
        if number in (9, 14):
            [pid] = programs()
            os.kill(pid, signal.SIGKILL)
    check(references)


_KILLED = """
import numpy, ray, sys
ray.init(num_cpus=1, object_store_memory=80 << 20, object_spilling_directory=sys.argv[1])
kept = [ray.put(numpy.ones(10 << 20, dtype=numpy.uint8)) for _ in range(12)]
from oxiray import _session
print(_session._daemon_pid, flush=True)
sys.stdin.read()
"""


def test_a_killed_daemon_leaves_nothing_there(s3: S3Server) -> None:
    command = [sys.executable, "-c", _KILLED, f"s3://{BUCKET}/killed"]
    environment = {**os.environ, **s3.variables}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as driver:
        assert driver.stdout is not None
        daemon = int(driver.stdout.readline())
        assert len(s3.keys("killed")) > 1
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: not s3.keys("killed"))
        wait_until(lambda: not alive(daemon))
        driver.kill()


def start(directory: str, variables: dict[str, str]) -> str:
    """What a cluster says that cannot be started."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    program = "import ray, sys; ray.init(num_cpus=1, **({'object_spilling_directory': sys.argv[1]} if sys.argv[1] else {}))"
    command = [sys.executable, "-c", program, directory]
    done = subprocess.run(command, env={**known, **variables}, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    return done.stderr


@pytest.mark.parametrize(
    ("directory", "variables", "said"),
    [
        ("gs://bucket/a", {}, "`gs://bucket/a` is of gs://, and only storage that speaks S3 is known"),
        ("s3://bucket/a", {"AWS_EC2_METADATA_DISABLED": "true"}, "needs credentials"),
        ("s3://bucket/a", {"AWS_ALLOW_HTTP": ""}, "AWS_ALLOW_HTTP=true"),
        ("s3://bucket/a", {"AWS_SECRET_ACCESS_KEY": "wrong"}, "AWS_SECRET_ACCESS_KEY"),
        ("s3://bucket/a", {"AWS_ACCESS_KEY_ID": "read-key"}, "what they may do in the bucket"),
        ("s3://bucket/a", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "Look whether the endpoint answers"),
        ("", {"RAY_object_spilling_config": '{"type": "ray_storage"}'}, "RAY_object_spilling_config"),
    ],
)
def test_storage_that_cannot_be_used_is_an_error_at_the_start(
    s3: S3Server, directory: str, variables: dict[str, str], said: str
) -> None:
    given = {**s3.variables, **variables}
    if "AWS_EC2_METADATA_DISABLED" in variables:
        given = {name: value for name, value in given.items() if name not in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    told = start(directory, given)
    assert said in told and directory in told, told


def test_the_place_is_said_as_ray_says_it(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)
    config = json.dumps({"type": "smart_open", "params": {"uri": [f"s3://{BUCKET}/configured"]}})
    ray.shutdown()
    ray.init(num_cpus=1, _system_config={"object_spilling_config": config})
    assert len(s3.keys("configured")) == 1
    ray.shutdown()
    command = [str(_cli.native_binary()), "start", "--head", "--num-cpus=1", f"--object-spilling-directory=s3://{BUCKET}/started"]
    # Nobody waits for what it leaves open.
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    try:
        assert len(s3.keys("started")) == 1
    finally:
        subprocess.run([str(_cli.native_binary()), "stop"], check=True, capture_output=True, timeout=60)
    wait_until(lambda: not s3.keys("configured") and not s3.keys("started"))


# The last one: SeaweedFS refuses less when it was started again over its files.
def test_a_server_that_is_killed_meanwhile_loses_nothing(cluster: str, s3: S3Server) -> None:
    @ray.remote(max_retries=3)
    def make(number: int) -> Any:
        return array(number)

    references = [make.remote(number) for number in range(COUNT)]
    wait_until(lambda: _core.cluster()["store"]["spilled"] > 0)
    s3.kill()
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(s3.start)
        more = [ray.put(array(COUNT + number)) for number in range(4)]
        again.result()
    check([*references, *more])
