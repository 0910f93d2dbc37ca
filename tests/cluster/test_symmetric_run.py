"""`ray symmetric-run`, as scripts written for Ray call it: the command `ray` and Ray's flags, on one machine and on two hosts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from homes import free_port
from hosts import Hosts
from watching import processes_of, wait_until

#: What the cluster has, and where it runs what.
PROGRAM = """
import json, os, sys
import ray

ray.init(address="auto", logging_level="ERROR")

@ray.remote(num_cpus=2)
class Place:
    def where(self):
        return ray.util.get_node_ip_address()

places = [Place.remote() for _ in range(int(ray.cluster_resources()["CPU"]) // 2)]
where = sorted(ray.get([place.where.remote() for place in places]))
total = ray.cluster_resources()
print(json.dumps({"argument": sys.argv[1], "nodes": len(ray.nodes()), "CPU": total["CPU"], "widgets": total["widgets"], "where": where}))
sys.exit(int(sys.argv[2]))
"""
#: Options of `ray start`, as Ray takes them: all nodes are given the same.
START = ("--num-cpus=2", "--num-gpus", "0", "--resources", '{"widgets": 3}', "--object-store-memory", "100000000", "--disable-usage-stats")


def ray(*words: str) -> tuple[str, ...]:
    """The command `ray` of this environment, which is the alias's."""
    command = shutil.which("ray", path=str(Path(sys.executable).parent))
    assert command, "the alias is installed"
    return (command, *words)


@pytest.fixture
def program(tmp_path: Path) -> tuple[str, str]:
    """The program, as it is named behind `--`."""
    (tmp_path / "program.py").write_text(PROGRAM)
    return sys.executable, str(tmp_path / "program.py")


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A variable that every process of a test has, `NAME=value`; sessions lie in a folder of the test's own."""
    name, value = "TEST_MARK", uuid.uuid4().hex
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("OXIRAY_TMPDIR", str(tmp_path / "sessions"))
    return f"{name}={value}"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(ray("symmetric-run", *words), capture_output=True, text=True, check=False, timeout=100)


@pytest.mark.parametrize("status", [0, 3])
def test_on_one_machine_the_program_has_a_cluster_and_its_status_is_the_commands(marked: str, program: tuple[str, str], status: int) -> None:
    told = run("--address", f"127.0.0.1:{free_port()}", *START, "--", *program, "--given=1", str(status))
    assert told.returncode == status, told.stderr
    found = json.loads(told.stdout)
    assert found.pop("where") and found == {"argument": "--given=1", "nodes": 1, "CPU": 2.0, "widgets": 3.0}
    wait_until(lambda: processes_of(marked) == [])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--address", "127.0.0.1:6379", "--head", "--", "true"), "--head cannot be given to symmetric-run"),
        (("--address", "127.0.0.1:6379", "--port", "6379", "--", "true"), "--port cannot be given to symmetric-run"),
        (("--address", "127.0.0.1:6379", "--block", "--", "true"), "--block cannot be given to symmetric-run"),
        (("--address", "127.0.0.1", "--", "true"), "Invalid address: 127.0.0.1. Must be in format <host>:<port>"),
        (("--address", "127.0.0.1:6379", "--"), "<COMMAND>..."),
        (("--address", "127.0.0.1:6379", "python"), "'python'"),
        (("--", "true"), "name the head with --address=HOST:PORT"),
    ],
)
def test_what_ray_refuses_is_refused_with_the_reason(marked: str, words: tuple[str, ...], says: str) -> None:
    told = run(*words)
    assert told.returncode != 0 and says in " ".join(told.stderr.split()), told.stderr


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    if os.geteuid() != 0:
        pytest.skip("hosts of their own are network namespaces, which only root can make: run these tests as root")
    made = Hosts(tmp_path, count=2)
    try:
        yield made
    finally:
        made.end()


def test_on_two_hosts_one_is_the_head_and_the_other_joins(hosts: Hosts, marked: str, program: tuple[str, str], tmp_path: Path) -> None:
    # The same command on both, as a script has it that `mpirun` or `pdsh` starts.
    words = ("symmetric-run", "--address", f"{hosts.address(0)}:6379", "--min-nodes", "2", *START)
    # No other machine comes in without the token: that is the one flag beside Ray's.
    told = subprocess.run(hosts.command(1, *ray(*words, "--", *program, "x", "0")), capture_output=True, text=True, check=False, timeout=60)
    assert told.returncode == 1 and "say with --token-file=FILE" in told.stderr
    words = (*words, "--token-file", str(tmp_path / "token"), "--", *program, "x", "5")
    started = [
        subprocess.Popen(hosts.command(index, *ray(*words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for index in (1, 0)
    ]
    try:
        (joined, other), (led, said) = [process.communicate(timeout=100) for process in started]
    finally:
        for process in started:
            process.kill()
    member, head = [process.returncode for process in started]
    assert head == 5 and "2 nodes are there" in said, (led, said)
    assert member == 0 and joined == "", (joined, other)
    addresses = [hosts.address(0), hosts.address(1)]
    assert json.loads(led) == {"argument": "x", "nodes": 2, "CPU": 4.0, "widgets": 6.0, "where": addresses}
    assert not (tmp_path / "token").exists(), "the token goes with the cluster"
    wait_until(lambda: processes_of(marked) == [])
