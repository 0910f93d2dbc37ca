"""The cluster under fire: a head and members that join over TLS, each with a host's address and sessions of its own, and
the drivers of the load. Whatever is started here dies with this process."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Set
from pathlib import Path

import diary
from oxiray._cli import native_binary

#: Every process of a run has this variable, with the run's folder in it.
MARK = "OXIRAY_CHAOS_RUN"
CPUS, GPUS = 2, 2
#: What only nodes of the run have, and all their honest work asks for that asks for nothing else: a hostile member has room
#: for what wants nothing.
OURS = "ours"
STORE_BYTES = 200 << 20
#: For how long a member goes on without a word from the head, in seconds.
LEASE_S = 2.0
#: How long a daemon may take to serve, in seconds.
_START_LIMIT_S = 40.0
_HERE = Path(__file__).parent
_PR_SET_PDEATHSIG = 1


def _dies_with_its_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def processes() -> dict[int, int]:
    """All that live: pid and parent."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                found[int(folder.name)] = int(parent)
    return found


def of_the_run(folder: Path) -> dict[int, str]:
    """Every living process of this run but this one: pid and command."""
    mark, found = f"{MARK}={folder}".encode(), {}
    for pid in processes():
        if pid == os.getpid():
            continue
        with contextlib.suppress(OSError):
            where = Path(f"/proc/{pid}")
            if mark in (where / "environ").read_bytes().split(b"\0"):
                found[pid] = (where / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return found


class Cluster:
    """The daemons, by host, and the drivers, by name. The head is on host 0."""

    def __init__(self, folder: Path, seed: int, heads_die: bool) -> None:
        self.folder, self._seed, self._heads_die = folder, seed, heads_die
        self.daemons: dict[int, subprocess.Popen[bytes]] = {}
        self.drivers: dict[str, subprocess.Popen[bytes]] = {}
        #: The hostile, by kind, and until when each may last.
        self.hostiles: dict[str, tuple[float, subprocess.Popen[bytes]]] = {}
        self._driver_numbers: dict[str, int] = {}
        self._ports: dict[int, int] = {}
        (folder / "diaries").mkdir()

    def sessions(self, host: int) -> Path:
        """Where a host's daemon has its sessions."""
        return self.folder / f"h{host}"

    def address(self, host: int) -> str:
        """Where a host's daemon listens, each time that it is started."""
        ip = f"127.0.0.{host + 1}"
        if host not in self._ports:
            with socket.create_server((ip, 0)) as free:
                self._ports[host] = free.getsockname()[1]
        return f"{ip}:{self._ports[host]}"

    def nodes(self, host: int) -> list[str]:
        """The identifiers of the nodes that are or were on a host."""
        found = []
        for description in self.sessions(host).glob("oxiray-*/session_*/session.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                found.append(str(json.loads(description.read_text())["node"]))
        return found

    def token_file(self) -> Path:
        """With what members join."""
        return next(self.sessions(0).glob("oxiray-*/session_*/join-token"))

    def _start(self, command: list[str], log: str, host: int) -> subprocess.Popen[bytes]:
        sessions = self.sessions(host)
        sessions.mkdir(exist_ok=True)
        own = {
            MARK: str(self.folder), diary.FOLDER: str(self.folder / "diaries"), diary.HOST: f"host{host}",
            "OXIRAY_TMPDIR": str(sessions), "RAY_TMPDIR": str(sessions),
        }  # fmt: skip
        with (self.folder / log).open("ab") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | own,
                preexec_fn=_dies_with_its_parent,
            )

    def begin_daemon(self, host: int) -> None:
        """Starts a host's daemon, and does not wait for it to serve."""
        words = ["start", "--block", f"--num-cpus={CPUS}", f"--num-gpus={GPUS}", f"--object-store-memory={STORE_BYTES}"]
        words += [f"--resources={json.dumps({OURS: 1000})}"]
        ip, _, port = self.address(host).partition(":")
        if host == 0:
            words += ["--head", f"--port={port}", f"--node-lease={LEASE_S}"]
        else:
            words += [f"--address={self.address(0)}", f"--token-file={self.token_file()}"]
            words += [f"--node-ip-address={ip}", f"--node-manager-port={port}"]
        self.daemons[host] = self._start([str(native_binary()), *words], f"daemon-{host}.log", host)

    def start_daemon(self, host: int) -> None:
        """Starts a host's daemon. Raises `RuntimeError` where it does not come to serve."""
        log = self.folder / f"daemon-{host}.log"
        before = log.stat().st_size if log.exists() else 0
        self.begin_daemon(host)
        until = time.monotonic() + _START_LIMIT_S
        while b"runtime started" not in log.read_bytes()[before:]:
            if self.daemons[host].poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the daemon of host {host} does not serve: {self.tail(log)}")
            time.sleep(0.02)

    def start_driver(self, name: str) -> None:
        """Starts one more driver of that name, on the head's host."""
        number = self._driver_numbers[name] = self._driver_numbers.get(name, -1) + 1
        command = [sys.executable, str(_HERE / "driver.py"), f"--name={name}", f"--number={number}"]
        command += [f"--folder={self.folder}", f"--seed={self._seed}", *["--heads-die"][: int(self._heads_die)]]
        self.drivers[name] = self._start(command, f"driver-{name}.log", 0)

    def start_hostile(self, command: list[str], log: str) -> subprocess.Popen[bytes]:
        """Starts one who means harm, on the head's host."""
        return self._start(command, log, 0)

    def started(self) -> dict[int, str]:
        """The processes that were started for daemons and live: pid and host."""
        return {process.pid: str(host) for host, process in self.daemons.items() if process.poll() is None}

    def serving(self) -> dict[int, str]:
        """The daemons that live: pid and host. The head's is the process that was started; a member's is the child of that
        one, which waits for its end."""
        started = self.started()
        members = {pid: host for pid, host in started.items() if host != "0"}
        below = {pid: members[parent] for pid, parent in processes().items() if parent in members}
        return {pid: host for pid, host in started.items() if host == "0"} | below

    def turned_away(self, killed: Set[int]) -> list[int]:
        """Hosts whose daemon ended and is not among those that were killed: it found no head, or was too slow for one."""
        members = {host: process for host, process in self.daemons.items() if host != 0 and self._heads_die}
        return [host for host, one in members.items() if one.poll() is not None and one.pid not in killed]

    def has_lost_a_driver(self) -> bool:
        """Whether one has ended by itself."""
        return any(process.poll() not in (None, -signal.SIGKILL) for process in self.drivers.values())

    def audit(self, limit_s: float) -> dict[str, object]:
        """What a last driver finds; where it finds nothing in time, what it said instead."""
        log = f"audit-{time.monotonic_ns()}.log"
        done = self._start([sys.executable, str(_HERE / "audit.py"), f"--folder={self.folder}"], log, 0)
        try:
            done.wait(limit_s)
        except subprocess.TimeoutExpired:
            done.kill()
            done.wait()
        try:
            return dict(json.loads((self.folder / log).read_text().splitlines()[-1]))
        except (IndexError, ValueError):
            return {"faults": [f"the last driver found nothing: {self.tail(self.folder / log)}"]}

    def stop(self, limit_s: float) -> list[str]:
        """Ends the daemons as an administrator would, the head last; the names of those that did not end in time."""
        late = []
        for host in sorted(self.daemons, reverse=True):
            self.daemons[host].terminate()
            try:
                self.daemons[host].wait(limit_s)
            except subprocess.TimeoutExpired:
                late.append(f"the daemon of host {host}")
        return late

    def kill_all(self) -> None:
        """Whatever still runs of what was started here."""
        hostiles = [process for _, process in self.hostiles.values()]
        for process in [*hostiles, *self.drivers.values(), *self.daemons.values()]:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()

    @staticmethod
    def tail(log: Path, bytes_max: int = 3000) -> str:
        """The end of a log."""
        return log.read_bytes()[-bytes_max:].decode(errors="replace") if log.exists() else "it has no log"
