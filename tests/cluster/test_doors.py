"""The doors of a cluster: which ports are open, what they say to strangers, and where secrets stand."""

from __future__ import annotations

import contextlib
import os
import random
import re
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from oxiray._cli import native_binary
from ray.cluster_utils import Cluster

#: The most that a stranger hears: an alert of TLS.
ALERT_BYTES = 7


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head and a member that came over the network, at work."""
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2}, over_network=True, connect=True)
    cluster.add_node(num_cpus=2, resources={"member": 1})
    work = ray.remote(lambda: 7).options(resources={"member": 0.1})
    assert ray.get(work.remote()) == 7
    yield cluster
    cluster.shutdown()


def read(path: Path) -> bytes:
    """A file, or nothing where it went with its process meanwhile."""
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""


def descendants(pid: int) -> set[int]:
    """The process and all that descend from it."""
    found = {pid}
    # Processes and their threads end meanwhile.
    with contextlib.suppress(OSError):
        for thread in list(Path(f"/proc/{pid}/task").iterdir()):
            with contextlib.suppress(OSError):
                for child in (thread / "children").read_text().split():
                    found |= descendants(int(child))
    return found


def listening(pids: set[int]) -> list[tuple[int, str, int]]:
    """Process, address and port of every TCP and UDP socket that these processes listen at."""
    inodes = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in list(Path(f"/proc/{pid}/fd").iterdir()):
                with contextlib.suppress(OSError):
                    name = os.readlink(entry)
                    if name.startswith("socket:["):
                        inodes[name[8:-1]] = pid
    found = []
    for kind, listens in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == listens and fields[9] in inodes:
                address, port = fields[1].split(":")
                host = socket.inet_ntoa(bytes.fromhex(address)[::-1]) if len(address) == 8 else address
                found.append((inodes[fields[9]], host, int(port, 16)))
    return found


def doors(cluster: Cluster) -> list[tuple[str, int]]:
    nodes = cluster.list_all_nodes()
    return [(host, port) for node in nodes for _, host, port in listening({node.pid})]


def test_ports_are_those_of_the_table(cluster: Cluster) -> None:
    table = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    rows = re.findall(r"^\| (head|member of another machine|driver, worker, template) \| (.*?) \|", table, re.MULTILINE)
    assert [name for name, _ in rows] == ["head", "member of another machine", "driver, worker, template"]
    for node in cluster.list_all_nodes():
        open_ports = listening(descendants(node.pid))
        assert len(open_ports) == 1, "one for a daemon, none for templates and workers"
        pid, host, _ = open_ports[0]
        assert pid == node.pid
        assert host.startswith("127.")
    assert listening({os.getpid()}) == [], "a driver has none"


def test_ports_are_those_that_the_table_says_can_be_chosen(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        ports = [one.getsockname()[1] for one in (first, second)]
    chosen = {"head": ("127.0.0.21", ports[0]), "member of another machine": ("127.0.0.22", ports[1])}
    table = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    started = []
    try:
        for name, (host, port) in chosen.items():
            (row,) = re.findall(rf"^\| {name} \| (.*?) \| (.*?) \| `oxiray (start .*?)` \|", table, re.MULTILINE)
            port_option, address_option = (re.findall(r"`(--[a-z-]+)`", cell)[0] for cell in row[:2])
            token = next(tmp_path.glob("head/oxiray-*/session_*/join-token"), "")
            given = row[2].replace("A:P", f"{chosen['head'][0]}:{ports[0]}")
            words = [*given.replace("=P", f"={port}").replace("=F", f"={token}").split(), "--block", f"{address_option}={host}"]
            if port_option not in given:
                words.append(f"{port_option}={port}")
            folder = tmp_path / name.split()[0]
            folder.mkdir()
            environment = os.environ | {"OXIRAY_TMPDIR": str(folder), "RAY_TMPDIR": str(folder)}
            command = [str(native_binary()), *words]
            started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
            assert "started" in str(started[-1].stdout.readline()), "it serves"
            # A member's daemon is the child of the process that was started.
            assert [where[1:] for where in listening(descendants(started[-1].pid))] == [(host, port)]
    finally:
        for daemon in reversed(started):
            daemon.terminate()
            daemon.wait(30)


def test_a_cluster_that_was_not_asked_for_a_port_has_none() -> None:
    alone = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        alone.add_node(num_cpus=1)
        assert [listening(descendants(node.pid)) for node in alone.list_all_nodes()] == [[], []]
    finally:
        alone.shutdown()


def test_strangers_hear_nothing_and_do_no_harm(cluster: Cluster) -> None:
    chance = random.Random(7)
    said = [b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x80\x02\x03]q\x00.", bytes(100_000)]
    said += [chance.randbytes(chance.randrange(1, 3000)) for _ in range(40)]
    # What looks like the beginning of TLS goes further in.
    said += [b"\x16\x03\x01" + len(body).to_bytes(2, "big") + body for body in said[4:34]]
    for door in doors(cluster):
        for words in said:
            with socket.create_connection(door, timeout=10) as stranger:
                heard = b""
                try:
                    stranger.sendall(words)
                    stranger.shutdown(socket.SHUT_WR)
                    while piece := stranger.recv(4096):
                        heard += piece
                except OSError:  # it has hung up
                    pass
            assert len(heard) <= ALERT_BYTES and heard[:1] in (b"", b"\x15"), (words[:20], heard)
    work = ray.remote(lambda: 8).options(resources={"member": 0.1})
    assert ray.get(work.remote()) == 8


def test_who_says_nothing_is_not_waited_for(cluster: Cluster) -> None:
    silent = [socket.create_connection(door, timeout=60) for door in doors(cluster)]
    for stranger in silent:
        with stranger:
            assert stranger.recv(1) == b"", "the head hangs up by itself"


@pytest.mark.parametrize("fault", ["missing", "empty", "foreign", "wrong"])
def test_tokens_that_are_none_let_nobody_in(cluster: Cluster, tmp_path: Path, fault: str) -> None:
    assert cluster.head_node is not None
    address, token_file = cluster.head_node._door
    token = Path(str(token_file)).read_text().strip()
    _, fingerprint, secret = token.split(".")
    path = tmp_path / "token"
    texts = {"empty": "", "foreign": f"oxr1.{'0' * 64}.{secret}", "wrong": f"oxr1.{fingerprint}.{'0' * 64}"}
    if fault != "missing":
        path.touch(0o600)
        path.write_text(texts[fault])
    command = [str(native_binary()), "start", f"--address={address}", "--token-file", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    words = {"missing": "No such file", "empty": "begin", "foreign": "another cluster", "wrong": "secret is wrong"}
    assert words[fault] in done.stderr
    assert secret not in done.stderr
    assert len(ray.nodes()) == 2


def test_secrets_stand_in_their_files_only(cluster: Cluster) -> None:
    assert cluster.head_node is not None
    token_file = Path(str(cluster.head_node._door[1]))
    secret = token_file.read_text().strip().rpartition(".")[2]
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    for node in cluster.list_all_nodes():
        for path in Path(node.session_dir).rglob("*"):
            if path.is_file() and path != token_file:
                assert secret.encode() not in read(path), path
        for pid in descendants(node.pid):
            for what in ("cmdline", "environ"):
                assert secret.encode() not in read(Path(f"/proc/{pid}/{what}")), (pid, what)
