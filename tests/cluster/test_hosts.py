"""Hosts with addresses of their own: they join, work, are cut off, come back, and lose processes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Hosts
from oxiray._cli import native_binary

PREAMBLE = """
import os, signal, subprocess, sys, time
import ray

def until(holds, limit=60.0):
    end = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < end, "it did not come to be in time"
        time.sleep(0.02)

def alive():
    return {node["NodeManagerAddress"]: node["NodeID"] for node in ray.nodes() if node["Alive"]}

def is_gone(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True

@ray.remote(num_cpus=0)
class Somewhere:
    def pid(self):
        return os.getpid()
    def make(self, mib):
        import numpy
        return numpy.ones(mib << 17)
    def sum(self, values):
        return float(values.sum())
    def ask(self, other):
        return ray.get(other.pid.remote())

def on(host, thing=Somewhere, **options):
    return thing.options(resources={host: 0.1}, **options)

ray.init(address="auto")
until(lambda: len(alive()) == 3)
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Three hosts in one cluster; each has a resource with its number."""
    if os.geteuid() != 0:
        pytest.skip("hosts of their own are network namespaces, which only root can make: run these tests as root")
    made = Hosts(tmp_path_factory.mktemp("hosts"))
    try:
        for index in range(3):
            made.start(index, "--num-cpus=2", f'--resources={{"h{index}": 4}}', f"--object-store-memory={1400 << 20}")
        yield made
    finally:
        made.end()


def test_work_and_values_go_from_host_to_host(hosts: Hosts) -> None:
    hosts.program(
        PREAMBLE
        + """
assert set(alive()) == {"10.77.0.1", "10.77.0.2", "10.77.0.3"}
first, second, here = on("h1").remote(), on("h2").remote(), on("h0").remote()
pids = ray.get([actor.pid.remote() for actor in (first, second, here)])
assert ray.get(first.ask.remote(second)) == pids[1]
assert ray.get(second.ask.remote(here)) == pids[2]
assert ray.get(here.ask.remote(first)) == pids[0]
made = first.make.remote(1024)
assert ray.get(second.sum.remote(made)) == 1024 << 17
"""
    )


def test_a_host_that_is_cut_off_ends_its_work_first_and_comes_back_as_another(hosts: Hosts) -> None:
    hosts.program(
        PREAMBLE
        + """
before = alive()
lost = on("h2").remote()
pid = ray.get(lost.pid.remote())
subprocess.run(["ip", "-n", sys.argv[1], "link", "set", "eth0", "down"], check=True)
until(lambda: is_gone(pid) or "10.77.0.3" not in alive())
assert is_gone(pid), "the head gave the host up before it had ended its work"
until(lambda: "10.77.0.3" not in alive())
try:
    ray.get(lost.pid.remote(), timeout=30)
    raise SystemExit("an actor on a host that is given up answers")
except ray.exceptions.RayActorError:
    pass
assert ray.available_resources().get("h2") is None, "what a dead host had is not handed on"
subprocess.run(["ip", "-n", sys.argv[1], "link", "set", "eth0", "up"], check=True)
until(lambda: "10.77.0.3" in alive())
assert alive()["10.77.0.3"] != before["10.77.0.3"], "it was refused under its old name"
assert ray.get(on("h2").remote().pid.remote()) != pid
""",
        hosts.names[2],
    )


def test_every_kind_of_process_may_die(hosts: Hosts) -> None:
    hosts.program(
        PREAMBLE
        + """
def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])

actor = on("h1", max_restarts=-1, max_task_retries=-1).remote()
worker = ray.get(actor.pid.remote())
os.kill(worker, signal.SIGKILL)
again = ray.get(actor.pid.remote())
assert again != worker
os.kill(parent(again), signal.SIGKILL)  # its template
until(lambda: is_gone(again))
third = ray.get(actor.pid.remote())
assert third not in (worker, again)
daemon = parent(parent(third))
os.kill(daemon, signal.SIGSTOP)  # it cannot end its work by itself: the kernel does
until(lambda: is_gone(daemon) and is_gone(third))
until(lambda: "10.77.0.2" not in alive())
"""
    )


def test_a_copy_of_the_token_that_others_may_read_is_refused(hosts: Hosts, tmp_path: Path) -> None:
    copy = tmp_path / "token"
    copy.write_text(hosts.token_file().read_text())
    copy.chmod(0o644)
    words = [str(native_binary()), "start", "--address=10.77.0.1:6379", "--token-file", str(copy)]
    done = subprocess.run(hosts.command(1, *words), capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "0600" in done.stderr
