"""A standby goes on with the cluster of a head on another machine, and two heads never both acknowledge anything."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from homes import PREAMBLE, Home, free_port
from watching import alive, wait_until


class Etcd:
    """An etcd of one member on this machine."""

    def __init__(self, folder: Path) -> None:
        self.port, peers = free_port(), free_port()
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{peers}"
        command = ["etcd", "--data-dir", str(folder / "etcd"), "--initial-cluster", f"default={peer}"]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        self.log = (folder / "etcd.log").open("wb")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)
        wait_until(self.answers)

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as stream:
                stream.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                return b'"true"' in stream.recv(4096)
        except OSError:
            return False

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()


class Machine(Home):
    """A machine of its own, as far as sessions go: a folder and a port."""

    def __init__(self, folder: Path, etcd: Etcd) -> None:
        folder.mkdir()
        super().__init__(folder)
        self.store = f"etcd://127.0.0.1:{etcd.port}/tried"

    def start(self, *more: str) -> subprocess.CompletedProcess[str]:
        return self.oxiray("start", "--head", f"--port={self.port}", "--num-cpus=4", f"--store={self.store}", *more)

    def is_head(self) -> bool:
        return self.oxiray("status").returncode == 0

    def pid(self) -> int:
        [description] = self.folder.glob("oxiray-*/session_*/session.json")
        return json.loads(description.read_text())["pid"]

    def log(self) -> str:
        return "".join(log.read_text() for log in self.folder.glob("oxiray-*/logs/session_*/daemon.log"))


@pytest.fixture
def two() -> Iterator[tuple[Machine, Machine, Etcd]]:
    """A head and its standby."""
    if shutil.which("etcd") is None:
        pytest.skip("etcd is missing: install Debian's etcd-server, as `make test` does where it is root")
    ray.shutdown()
    folder = Path(tempfile.mkdtemp(prefix="oxi-"))
    etcd = Etcd(folder)
    first, second = Machine(folder / "first", etcd), Machine(folder / "second", etcd)
    try:
        started = first.start()
        assert started.returncode == 0, started
        waits = second.start("--standby")
        assert waits.returncode == 0 and "it waits to be the head" in waits.stdout, waits
        assert first.is_head() and not second.is_head()
        yield first, second, etcd
    finally:
        for machine in (first, second):
            machine.oxiray("stop", "--force")
        etcd.end()
        shutil.rmtree(folder, ignore_errors=True)


MADE = """
large = bytes(range(256)) * 8192
for i in range(150):
    kv._internal_kv_put(f"key{i}", f"value{i}".encode())
kv._internal_kv_put("large", b"x" * 1_000_000)
kv._internal_kv_put("large", large)
lasting = Counter.options(name="lasting", lifetime="detached", max_restarts=2).remote(10)
group = ray.util.placement_group([{"CPU": 1}, {"CPU": 1}], name="group", lifetime="detached")
assert ray.get([lasting.next.remote(), group.ready()])[0] == 11
"""
THERE = """
large = bytes(range(256)) * 8192
assert all(kv._internal_kv_get(f"key{i}") == f"value{i}".encode() for i in range(150))
assert kv._internal_kv_get("large") == large
assert ray.get(ray.get_actor("lasting").next.remote(), timeout=60) == 11
group = ray.util.get_placement_group("group")
ray.get(group.ready(), timeout=60)
assert ray.util.placement_group_table(group)["state"] == "CREATED"
"""


def test_a_standby_goes_on_where_the_head_was_killed(two: tuple[Machine, Machine, Etcd]) -> None:
    first, second, _ = two
    first.program(MADE)
    os.kill(first.pid(), signal.SIGKILL)
    wait_until(second.is_head, timeout=60)
    assert "as head number 2: 151 kept values, 1 actor, 1 placement group" in second.log()
    second.program(THERE)
    # The first machine is the standby now, and the other way round.
    assert first.start("--standby").returncode == 0
    os.kill(second.pid(), signal.SIGKILL)
    wait_until(first.is_head, timeout=60)
    first.program(THERE)


def test_a_member_goes_to_the_standby_and_what_runs_there_runs_on(two: tuple[Machine, Machine, Etcd]) -> None:
    first, second, etcd = two
    third = Machine(first.folder.parent / "third", etcd)
    [token] = first.folder.glob("oxiray-*/session_*/join-token")
    addresses = f"--address=127.0.0.1:{first.port},127.0.0.1:{second.port}"
    try:
        joined = third.oxiray("start", addresses, f"--token-file={token}", "--num-cpus=1", '--resources={"there": 1}')
        assert joined.returncode == 0, joined
        text = "there = Counter.options(name='there', lifetime='detached', resources={'there': 1}).remote(5)\n"
        first.program(text + "assert ray.get(there.next.remote()) == 6")
        os.kill(first.pid(), signal.SIGKILL)
        wait_until(second.is_head, timeout=60)
        second.program("assert ray.get(ray.get_actor('there').next.remote(), timeout=60) == 7  # The same process.")
    finally:
        third.oxiray("stop", "--force")


def test_a_head_that_slept_through_its_turn_acknowledges_nothing_and_ends(two: tuple[Machine, Machine, Etcd]) -> None:
    first, second, _ = two
    text = """
kv._internal_kv_put("before", b"1")
print("ready", flush=True)
sys.stdin.readline()
number = 0
try:
    while True:
        kv._internal_kv_put(f"late{number}", b"1")
        number += 1
except BaseException as error:
    print(number, type(error).__name__, flush=True)
os._exit(0)
"""
    client = subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=first.environment,
    )
    assert client.stdin is not None and client.stdout is not None
    with client:
        assert client.stdout.readline() == "ready\n"
        old = first.pid()
        os.kill(old, signal.SIGSTOP)
        client.stdin.write("\n")
        client.stdin.flush()
        wait_until(second.is_head, timeout=60)
        second.program("kv._internal_kv_put('after', b'2')")
        os.kill(old, signal.SIGCONT)
        wait_until(lambda: not alive(old))
        assert client.stdout.readline().split()[0] == "0", "the old head acknowledged something"
    second.program("""
assert [kv._internal_kv_get(key) for key in ("before", "after", "late0")] == [b"1", b"2", None]
""")


def test_a_second_head_is_refused_and_a_head_without_etcd_ends(two: tuple[Machine, Machine, Etcd]) -> None:
    first, second, etcd = two
    assert second.oxiray("stop").returncode == 0
    refused = second.start()
    assert refused.returncode != 0 and "has a head" in refused.stderr and "--standby" in refused.stderr, refused
    old = first.pid()
    etcd.end()
    wait_until(lambda: not alive(old))
    wrong = second.oxiray("start", "--head", "--store=redis://somewhere")
    assert wrong.returncode != 0 and "`redis://somewhere` is no store" in wrong.stderr, wrong


def test_a_head_that_was_killed_goes_on_at_once_on_its_own_machine(two: tuple[Machine, Machine, Etcd]) -> None:
    first, second, _ = two
    assert second.oxiray("stop").returncode == 0
    first.program(MADE)
    os.kill(first.pid(), signal.SIGKILL)
    started = first.start()
    assert started.returncode == 0 and "as head number 2" in started.stdout, started
    first.program(THERE)


def test_stop_ends_the_cluster_and_its_standby(two: tuple[Machine, Machine, Etcd]) -> None:
    first, second, _ = two
    first.program(MADE)
    waits = second.pid()
    assert first.oxiray("stop").returncode == 0
    wait_until(lambda: not alive(waits))
    assert second.start().returncode == 0
    second.program("assert kv._internal_kv_get('key1') is None")
