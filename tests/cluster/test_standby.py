"""A standby goes on with the cluster of a head on another machine, and two heads never both acknowledge anything."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from homes import PREAMBLE, Home, free_port
from watching import alive, stopped, wait_until


class Etcd:
    """An etcd of one member on this machine."""

    scheme = "http"

    def __init__(self, folder: Path, *more: str) -> None:
        self.port, peers = free_port(), free_port()
        client, peer = f"{self.scheme}://127.0.0.1:{self.port}", f"http://127.0.0.1:{peers}"
        command = ["etcd", *more, "--unsafe-no-fsync", "--data-dir", str(folder / "etcd"), "--initial-cluster", f"default={peer}"]
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

    def access(self) -> list[str]:
        """The options of `oxiray start` by which a head is let in."""
        return []


class GuardedEtcd(Etcd):
    """One that speaks TLS only, with who shows a certificate, and lets in who is a user. It forgets tokens after a second."""

    scheme = "https"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.make_certificates()
        shown = [f"--cert-file={folder / 'server.crt'}", f"--key-file={folder / 'server.key'}"]
        asked = [f"--trusted-ca-file={folder / 'authority.crt'}", "--client-cert-auth", "--auth-token-ttl=1"]
        super().__init__(folder, *shown, *asked)
        self.ask("auth/user/add", name="root", password="all")
        self.ask("auth/role/add", name="root")
        self.ask("auth/user/grant", user="root", role="root")
        self.ask("auth/user/add", name="head", password="only its own")
        self.ask("auth/role/add", name="oxiray")
        key, end = (base64.b64encode(bound).decode() for bound in (b"oxiray/", b"oxiray0"))
        self.ask("auth/role/grant", name="oxiray", perm={"permType": "READWRITE", "key": key, "range_end": end})
        self.ask("auth/user/grant", user="head", role="oxiray")
        self.ask("auth/enable")
        (folder / "password").write_text("only its own\n")
        (folder / "password").chmod(0o600)

    def make_certificates(self) -> None:
        """An authority, a certificate for etcd, and one for heads, which has no common name: etcd would take that for a user."""
        new = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {0}.key -out {0}.{1} -subj /{2}"
        signed = "openssl x509 -req -in {0}.csr -CA authority.crt -CAkey authority.key -CAcreateserial -extfile names -out {0}.crt"
        (self.folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
        commands = [new.format("authority", "crt", "CN=authority") + " -x509"]
        for name, subject in (("server", "CN=etcd"), ("head", "O=heads")):
            commands += [new.format(name, "csr", subject), signed.format(name)]
        for command in commands:
            subprocess.run(command.split(), cwd=self.folder, check=True, capture_output=True)

    def ask(self, what: str, **question: object) -> None:
        context = ssl.create_default_context(cafile=self.folder / "authority.crt")
        context.load_cert_chain(self.folder / "head.crt", self.folder / "head.key")
        url, body = f"https://127.0.0.1:{self.port}/v3/{what}", json.dumps(question).encode()
        with urllib.request.urlopen(urllib.request.Request(url, body), context=context, timeout=10) as answer:
            answer.read()

    def answers(self) -> bool:
        try:
            self.ask("maintenance/status")
        except OSError:
            return False
        return True

    def access(self) -> list[str]:
        files = {"authority": "authority.crt", "certificate": "head.crt", "key": "head.key", "password-file": "password"}
        return ["--store-user=head", *(f"--store-{name}={self.folder / file}" for name, file in files.items())]


class SlowWay:
    """A way to etcd on which transactions take a while from when it is told so."""

    LATE_S = 1.0

    def __init__(self, etcd: Etcd) -> None:
        self.etcd, self.is_slow = etcd, threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.etcd.port))
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self.carry, args=ends, daemon=True).start()

    def carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                if b"/v3/kv/txn" in piece and self.is_slow.is_set():
                    # The machine between is slow; nothing is waited for here.
                    threading.Event().wait(self.LATE_S)
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)

    def end(self) -> None:
        self.listener.close()

    def access(self) -> list[str]:
        return []


class Machine(Home):
    """A machine of its own, as far as sessions go: a folder and a port."""

    def __init__(self, folder: Path, etcd: Etcd | SlowWay) -> None:
        folder.mkdir()
        super().__init__(folder)
        self.store, self.access = f"etcd://127.0.0.1:{etcd.port}/tried", etcd.access()

    def start(self, *more: str) -> subprocess.CompletedProcess[str]:
        own = ["start", "--head", f"--port={self.port}", "--num-cpus=4", f"--store={self.store}", *self.access]
        return self.oxiray(*own, *more)

    def is_head(self) -> bool:
        return self.oxiray("status").returncode == 0

    def pid(self) -> int:
        [description] = self.folder.glob("oxiray-*/session_*/session.json")
        return json.loads(description.read_text())["pid"]

    def log(self) -> str:
        return "".join(log.read_text() for log in self.folder.glob("oxiray-*/logs/session_*/daemon.log"))


@contextlib.contextmanager
def head_and_standby(kind: type[Etcd]) -> Iterator[tuple[Machine, Machine, Etcd]]:
    """A head and its standby, whose journal lies in such an etcd."""
    if shutil.which("etcd") is None:
        pytest.skip("etcd is missing: install Debian's etcd-server, as `make test` does where it is root")
    ray.shutdown()
    folder = Path(tempfile.mkdtemp(prefix="oxi-"))
    etcd = kind(folder)
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


@pytest.fixture
def two() -> Iterator[tuple[Machine, Machine, Etcd]]:
    """A head and its standby."""
    with head_and_standby(Etcd) as made:
        yield made


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
        with stopped(old):
            client.stdin.write("\n")
            client.stdin.flush()
            wait_until(second.is_head, timeout=60)
            second.program("kv._internal_kv_put('after', b'2')")
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
    killed = first.pid()
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: not alive(killed))
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


def test_an_etcd_that_demands_certificates_and_a_user_is_used_like_any_other() -> None:
    with head_and_standby(GuardedEtcd) as (first, second, etcd):
        # Tokens are forgotten meanwhile.
        first.program(MADE)
        os.kill(first.pid(), signal.SIGKILL)
        wait_until(second.is_head, timeout=60)
        second.program(THERE)
        stranger = Machine(first.folder.parent / "stranger", etcd)
        unverified, unknown = [], [option for option in etcd.access() if "user" not in option and "password" not in option]
        for access, reason in ((unverified, "cannot be used"), (unknown, "user name is empty")):
            stranger.access = access
            refused = stranger.start()
            assert refused.returncode != 0 and reason in refused.stderr, refused
        stranger.access = ["--store-user=head", f"--store-password-file={first.folder.parent / 'password'}"]
        refused = stranger.start()
        assert refused.returncode != 0 and "travels over TLS only" in refused.stderr, refused


SLOW = """
import json, threading
import oxiray
kv._internal_kv_put("before", b"1")
print("ready", flush=True)
sys.stdin.readline()
began = time.monotonic()
putting = threading.Thread(target=kv._internal_kv_put, args=("slow", b"1"))
putting.start()
rounds = 0
while putting.is_alive():
    turns = oxiray._core.cluster()["daemon"]["turns"]
    rounds += 1
took = time.monotonic() - began
assert took > 0.9, took
# A daemon that waits answers once or twice meanwhile.
assert rounds > 5, (rounds, took, turns)
assert kv._internal_kv_get("slow") == b"1"
"""


def test_nobody_waits_for_an_etcd_that_is_slow_but_who_has_something_written() -> None:
    if shutil.which("etcd") is None:
        pytest.skip("etcd is missing: install Debian's etcd-server, as `make test` does where it is root")
    ray.shutdown()
    folder = Path(tempfile.mkdtemp(prefix="oxi-"))
    etcd = Etcd(folder)
    way = SlowWay(etcd)
    head = Machine(folder / "head", way)
    try:
        started = head.start()
        assert started.returncode == 0, started
        program = [sys.executable, "-c", PREAMBLE + SLOW]
        pipe = subprocess.PIPE
        with subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=head.environment) as client:
            assert client.stdout is not None and client.stdout.readline() == "ready\n"
            way.is_slow.set()
            _, errors = client.communicate("\n", timeout=60)
            way.is_slow.clear()
        assert client.returncode == 0, errors
    finally:
        head.oxiray("stop", "--force")
        way.end()
        etcd.end()
        shutil.rmtree(folder, ignore_errors=True)
