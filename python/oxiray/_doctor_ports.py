"""Checks of `oxiray doctor`: the ports of this machine that a head and a node use, and those of a cluster that runs.

Invariant: a port is bound for a moment and never listened at; who has it is read from /proc.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oxiray._doctor_findings import LIMIT_S, Finding, command, ok, warning

#: Where a head listens for nodes of other machines, as Ray's does: only where `--port` says so.
HEAD_PORT = 6379
#: The first port that the dashboard tries.
DASHBOARD_PORT = 8265
#: The most exporters of metrics that are tried.
EXPORTERS_MAX = 8
#: The first port that needs no right.
PORT_OF_ALL_USERS = 1024
#: As much of a name as the kernel keeps.
_NAME_LETTERS = 15
_LISTENS = "0A"
_PORTS_OF_KERNEL = Path("/proc/sys/net/ipv4/ip_local_port_range")


@dataclass(frozen=True)
class Holder:
    """Who listens at a port.

    Attributes:
        user: str. The name of its user.
        pid: int or None. The process, where this user may see which it is.
        name: str. What the kernel calls it.
    """

    user: str
    pid: int | None = None
    name: str = ""

    def __str__(self) -> str:
        if self.pid is None:
            return f"a process of user {self.user} that this user cannot look at, or of another container"
        return f"{self.name}, pid {self.pid}, of user {self.user}"


def holder(port: int) -> Holder | None:
    """Who listens at a port of this machine, on whichever of its addresses."""
    found: dict[str, int] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    found[fields[9]] = int(fields[7])
    for inode, uid in found.items():
        pid = _who_has(inode)
        if pid is not None:
            return Holder(_user(uid), pid, _name(pid))
    return Holder(_user(next(iter(found.values())))) if found else None


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _name(pid: int) -> str:
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "a process"
    if len(name) == _NAME_LETTERS:
        with contextlib.suppress(OSError):
            program = Path(os.readlink(f"/proc/{pid}/exe")).name
            return program if program.startswith(name) else name
    return name


def _who_has(inode: str) -> int | None:
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                if any(_leads_to(file.path) == f"socket:[{inode}]" for file in os.scandir(process / "fd")):
                    return int(process.name)
    return None


def _leads_to(link: str) -> str:
    """What a descriptor is of; nothing where it was closed meanwhile."""
    try:
        return os.readlink(link)
    except OSError:
        return ""


def why_not_free(port: int) -> str:
    """Why nobody could listen at a port on all addresses; empty where one could."""
    with socket.socket() as tried:
        # As who listens there after another: connections that have ended do not count.
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("", port))
        except OSError as error:
            return error.strerror or str(error)
    return ""


def of_machine(ports: list[int]) -> Iterator[Finding]:
    """The ports that a head and a node of this machine use by default, and those that are named."""
    yield _of_port(HEAD_PORT, "for `oxiray start --head --port=6379`; without --port a head opens no port", "name another one with --port")
    yield _of_dashboard()
    yield _of_nodes()
    for port in ports:
        yield _of_port(port, "as --port of this command asks", "name another port, or end what has this one")


def _of_port(port: int, purpose: str, way_out: str) -> Finding:
    check = f"port {port}"
    why, has = why_not_free(port), holder(port)
    if not why:
        return ok(check, f"free, {purpose}")
    if has is not None and has.name.startswith("oxiray"):
        return ok(check, f"is in use by Oxiray: {has}")
    if has is None:
        right = "Ports below 1024 need root or CAP_NET_BIND_SERVICE: " if port < PORT_OF_ALL_USERS else ""
        advice = f"{right}{way_out}."
        return warning(check, f"cannot be listened at: {why}", f"{advice[0].upper()}{advice[1:]}")
    return warning(check, f"is in use by {has}", f"Where a head or node is to have it: {way_out}.")


def _of_dashboard() -> Finding:
    check = f"port {DASHBOARD_PORT}"
    why, has = why_not_free(DASHBOARD_PORT), holder(DASHBOARD_PORT)
    if not why:
        return ok(check, "free, for the dashboard (`oxiray start --head --include-dashboard`)")
    return ok(check, f"is in use by {has or why}; another dashboard takes the next free port, or that of --dashboard-port")


def _of_nodes() -> Finding:
    """The ports that have no fixed number: a node's for other nodes, and that of its metrics."""
    check = "ports of nodes"
    why = why_not_free(0)
    if why:
        return warning(check, f"no free port is left: {why}", "End what holds them, or widen net.ipv4.ip_local_port_range.")
    try:
        first, last = _PORTS_OF_KERNEL.read_text().split()
    except (OSError, ValueError):
        first, last = "32768", "60999"
    found = (
        f"a node that joins with --token-file listens at a free one from {first} to {last}, or at --node-manager-port, which "
        "firewalls between nodes have to let through; metrics have a port where --metrics-export-port names one"
    )
    return ok(check, found)


def connected(address: str) -> str:
    """Why HOST:PORT cannot be reached from here; empty where it can."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), LIMIT_S).close()
    except (OSError, OverflowError, ValueError) as error:
        return str(error)
    return ""


def of_cluster(address: str | None) -> Iterator[Finding]:
    """The ports of a cluster that answers to a command on this machine: the head's, the dashboard's and those of metrics."""
    asked = ("--address", address) if address else ()
    status, said = command("status", "--json", *asked)
    if status != 0:
        yield warning("head", f"`oxiray status` failed: {said}", "Run `oxiray status` again, and see daemon.log among the logs.")
        return
    daemon = json.loads(said)["daemon"]
    session = Path(daemon["session"])
    yield _of_head(daemon["address"], _description(session, daemon["address"]))
    status, said = command("dashboard", "url", *asked)
    if status == 0:
        yield _of_url(said)
    exporters = _exporters(session)
    if exporters:
        yield _of_exporters(exporters)


def _description(session: Path, address: str) -> dict[str, Any] | None:
    """What the head's session says of it, where the head is a process of this machine."""
    with contextlib.suppress(OSError, ValueError):
        described: dict[str, Any] = json.loads((session / "session.json").read_text())
        return described if described["address"] == address else None
    return None


def _of_head(address: str, described: dict[str, Any] | None) -> Finding:
    check = "head"
    listens = address if described is None else described["listens"]
    if listens is None:
        return ok(check, f"{address} opens no port: nodes of other machines can join where it was started with --port")
    why = connected(re.sub(r"^0\.0\.0\.0:", "127.0.0.1:", listens))
    if why:
        advice = (
            "Nodes cannot join or come back meanwhile. See whether a firewall lets this port through, and whether "
            "--node-ip-address of the head is an address that this machine reaches."
        )
        return warning(check, f"{listens} cannot be reached from here: {why}", advice)
    if listens.startswith("127."):
        return ok(check, f"{listens} can be reached, from this machine only; --node-ip-address names another address")
    return ok(check, f"{listens} can be reached from here")


def _of_url(url: str) -> Finding:
    place = re.match(r"https?://([^/]+)", url)
    why = connected(place.group(1)) if place else "it is no URL"
    if why:
        return warning("dashboard", f"{url} cannot be reached from here: {why}", "See dashboard.log among the logs of the head.")
    return ok("dashboard", f"{url} can be reached from here")


def _exporters(session: Path) -> list[str]:
    with contextlib.suppress(OSError, ValueError):
        groups = json.loads((session / "prom_metrics_service_discovery.json").read_text())
        return [target for group in groups for target in group["targets"]][:EXPORTERS_MAX]
    return []


def _of_exporters(exporters: list[str]) -> Finding:
    failed = {target: why for target in exporters if (why := connected(target))}
    if failed:
        found = "; ".join(f"{target} cannot be reached from here: {why}" for target, why in failed.items())
        advice = "Name an address that Prometheus reaches with --metrics-host, and see whether a firewall lets the port through."
        return warning("metrics", found, advice)
    return ok("metrics", f"{', '.join(exporters)} can be reached from here")
