"""`oxiray doctor`: whether Oxiray is installed as it should be, and whether the machine lets it work, with what to do.

Purpose: each check is one line for people and one entry for programs; a warning names the way out.

The checks themselves stand beside: `_doctor_programs`, `_doctor_ports`, `_doctor_storage`.

Invariant: no cluster is started, entered or changed, and neither `ray` nor a program's modules are imported.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import resource
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from oxiray import _alias, _cli, _doctor_ports, _doctor_programs, _doctor_storage
from oxiray._doctor_findings import Finding, command, ok, warning
from oxiray._version import RAY_VERSION, VERSION

#: Below so many open files or processes, a node with a few hundred workers meets the limit.
OPEN_FILES_FEW = 4096
PROCESSES_FEW = 4096
#: Below so much memory that is left, little fits beside the smallest object store of 75 MiB.
MEMORY_FEW_BYTES = 1 << 30
WIDTH = 80


def _versions() -> Iterator[Finding]:
    yield ok("Python", f"{platform.python_version()}, {sys.executable}")
    yield ok("Oxiray", f"{VERSION}, {Path(__file__).parent}; it speaks the public API of Ray {RAY_VERSION}")
    binary = _cli.native_binary()
    status, said = command("--version")
    version = re.match(r"\S+ (\S+)", said)
    if status != 0 or version is None:
        yield warning("program", f"{binary} cannot be run: {said}", "Reinstall the wheel `oxiray`, or unset OXIRAY_BINARY.")
    elif version.group(1) != VERSION:
        advice = "Install the wheel `oxiray` again, or unset OXIRAY_BINARY: the package and the program have to be of one version."
        yield warning("program", f"{version.group(1)}, {binary}, beside {VERSION} of the Python package", advice)
    else:
        yield ok("program", f"{version.group(1)}, {binary}")


def _whose_ray() -> Iterator[Finding]:
    """Whose `ray` this interpreter would import."""
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec("ray")
        origin = None if spec is None else spec.origin
        if spec is None:
            yield ok("import ray", "nothing is installed as `ray`; programs write `import oxiray as ray`")
        elif _alias.is_installed():
            yield ok("import ray", f"is Oxiray, by {_who_brought_the_name()}, {origin}")
        elif importlib.util.find_spec("oxiray_ray_alias") is not None:
            if _is_of_alias(origin):
                advice = "To run on Oxiray: `pip uninstall ray oxiray-ray-alias`, then `oxiray ray install`, which satisfies what requires `ray`."
                yield warning("import ray", f"fails: Oxiray's alias was installed over Ray itself, {origin}", advice)
                return
            advice = (
                "Something that requires `ray` was installed after the alias. To run on Oxiray: `pip uninstall ray "
                "oxiray-ray-alias`, then `oxiray ray install`, which satisfies what requires `ray`."
            )
            yield warning("import ray", f"is not Oxiray, although its alias is installed: {origin}", advice)
        else:
            advice = "To run on Oxiray: write `import oxiray as ray`, or `pip uninstall ray` and install the alias."
            yield warning("import ray", f"is not Oxiray: {origin or 'a folder without __init__.py'}", advice)
        return
    yield warning("import ray", "cannot be found out: a package in its place is broken", "Reinstall the alias.")


def _is_of_alias(origin: str | None) -> bool:
    """Whether the module `ray` is that of the alias, which refuses to be imported beside Ray's files."""
    with contextlib.suppress(OSError):
        return origin is not None and "oxiray_ray_alias" in Path(origin).read_text()
    return False


def _who_brought_the_name() -> str:
    """The distribution by which `import ray` is Oxiray: the alias, or the one that `oxiray ray install` makes."""
    for distribution, name in (("oxiray-ray-alias", "the alias"), ("ray", "the distribution of `oxiray ray install`")):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return f"{name} {importlib.metadata.version(distribution)}"
    return "an alias that no distribution has brought"


def _hardware() -> Iterator[Finding]:
    """Devices, what the kernel can keep from a process, and limits, as `oxiray hardware` finds them."""
    recorded = os.environ.get("OXIRAY_HOST_ROOT")
    status, said = command("hardware", "--json", *(("--host-root", recorded) if recorded else ()))
    if status != 0:
        yield warning("devices", f"`oxiray hardware` failed: {said}", "Run `oxiray hardware` and read what it says.")
        return
    told = json.loads(said)
    devices = [f"{one['family']['resource']}: {one['count']} x {one['type_name']} ({one['how']})" for one in told["accelerators"]]
    if devices or not told["warnings"]:
        yield ok("devices", "; ".join(devices) or "no accelerators; GPUs that init(num_gpus=...) names are logical")
    for text in told["warnings"]:
        yield warning("devices", text, "`oxiray hardware` shows what was found, and what was ruled out.")
    yield from _isolation(told["fences"] or {}, has_devices=bool(devices))
    yield from _limits(told["limits"] or {})


def _isolation(fences: dict[str, Any], *, has_devices: bool) -> Iterator[Finding]:
    works = [name for name, one in fences.items() if one["works"]]
    if works:
        yield ok("isolation", f"the kernel can keep processes from devices, by {', '.join(works)}")
    elif has_devices and fences:
        advice = (
            "--device-isolation=fence has no effect here, and `watch` has. Run the node as root, in a unit with Delegate=yes, or "
            "on a kernel with Landlock; `oxiray hardware` says what is missing."
        )
        yield warning("isolation", "the kernel can keep no process from devices", advice)


def _limits(limits: dict[str, Any]) -> Iterator[Finding]:
    levels = limits.get("memory") or []
    if levels:
        tightest = min(levels, key=lambda level: int(level["limit"]))
        left = min(level["limit"] - level["used"] for level in levels)
        found = f"{tightest['limit'] >> 20} MiB, {left >> 20} MiB of it are free ({tightest['source']})"
        if left < MEMORY_FEW_BYTES:
            advice = "Give the container or the job more memory, or end what uses it: the object store gets 30 % of what is free."
            yield warning("memory", found, advice)
        else:
            yield ok("memory", found)
    cpu = limits.get("cpu")
    bound = f", limited to {cpu['limit']:g} ({cpu['source']})" if cpu else ""
    yield ok("processors", f"{len(os.sched_getaffinity(0))}{bound}")
    pids = limits.get("pids")
    yield from _bounded("processes", pids and pids["limit"], resource.RLIMIT_NPROC, "-u", PROCESSES_FEW)
    yield from _bounded("open files", None, resource.RLIMIT_NOFILE, "-n", OPEN_FILES_FEW)


def _bounded(check: str, group: float | None, limit: int, option: str, few: int) -> Iterator[Finding]:
    """A limit of `ulimit`, and of a control group: the daemon raises its soft limit to the hard one by itself."""
    hard = resource.getrlimit(limit)[1]
    bounds = {f"`ulimit -H{option[1:]}`": hard, "control group": group}
    known = {source: bound for source, bound in bounds.items() if bound is not None and bound != resource.RLIM_INFINITY}
    if not known:
        yield ok(check, "no limit")
        return
    source, least = min(known.items(), key=lambda one: one[1])
    found = f"{least:.0f} ({source})"
    if least < few:
        advice = f"Raise it to {few * 16} in the shell, unit or container that starts the node (`ulimit {option} {few * 16}`)."
        yield warning(check, found, advice)
    else:
        yield ok(check, found)


def _files() -> Iterator[Finding]:
    """The folder of sessions, and shared memory."""
    folder = Path(os.environ.get("OXIRAY_TMPDIR") or os.environ.get("RAY_TMPDIR") or "/tmp")
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        advice = "Make the folder, or name another one with RAY_TMPDIR or `oxiray start --temp-dir`."
        yield warning("sessions", f"{folder} is no folder that this user can write to", advice)
    else:
        yield _doctor_storage.of_disk("sessions", folder)
    with contextlib.suppress(OSError):
        size = shutil.disk_usage("/dev/shm").total
        yield ok("/dev/shm", f"{size >> 20} MiB; Oxiray does not use it, objects lie in memory files")


def _kernel() -> Iterator[Finding]:
    yield ok("kernel", f"Linux {platform.release()}")
    for name, make in (("memfd_create", lambda: os.memfd_create("oxiray-doctor")), ("pidfd_open", lambda: os.pidfd_open(os.getpid()))):
        try:
            os.close(make())
        except OSError as error:
            advice = "Oxiray cannot run without it: allow it in the container's seccomp profile, or use a newer kernel."
            yield warning(name, f"the kernel refuses it: {error.strerror}", advice)
        else:
            yield ok(name, "works")
    yield _control_groups()


def _control_groups() -> Finding:
    version_two = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    hierarchy = Path("/sys/fs/cgroup") if version_two else Path("/sys/fs/cgroup/memory")
    if not hierarchy.is_dir():
        advice = "Limits of containers are not seen: give their memory with `oxiray start --memory` and --object-store-memory."
        return warning("control groups", "none are mounted at /sys/fs/cgroup", advice)
    of = f"version {2 if version_two else 1}, {hierarchy}"
    own = hierarchy / _own_group(version_two).lstrip("/")
    if not os.access(own if own.is_dir() else hierarchy, os.W_OK):
        return ok("control groups", f"{of}, read only: memory= is a promise here and no limit")
    return ok("control groups", f"{of}, can be written: `oxiray status` of a node says which limits of workers are enforced")


def _own_group(version_two: bool) -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "" if version_two else "memory" in controllers.split(","):
                return path
    return "/"


def _cluster(address: str | None) -> Iterator[Finding]:
    """Whether a cluster answers at an address; one of this machine where none is named."""
    asked = ("health-check", "--address", address) if address else ("health-check",)
    status, _ = command(*asked)
    if status == 0:
        yield ok("cluster", f"{address or 'one of this user on this machine'} answers")
        yield from _doctor_ports.of_cluster(address)
    elif address is None:
        yield ok("cluster", "none of this user runs on this machine; a program's init() starts one of its own")
    else:
        yield _reached(address)


def _reached(address: str) -> Finding:
    """Whether a port of another machine answers: programs cannot use it, and a node of this machine could join."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        advice = "Start one with `oxiray start --head`, or name its address as HOST:PORT."
        return warning("cluster", f"no cluster answers at {address} on this machine", advice)
    why = _doctor_ports.connected(f"{host}:{port}")
    if why:
        advice = (
            "See whether the head was started with --port and a --node-ip-address that this machine reaches, and whether a "
            "firewall lets this port through."
        )
        return warning("cluster", f"{address} cannot be reached: {why}", advice)
    advice = f"Programs connect to a node on their own machine: `oxiray start --address={host}:{port} --token-file=FILE` makes one."
    return warning("cluster", f"the port {address} can be reached, and no node of that cluster runs on this machine", advice)


def findings(address: str | None, ports: list[int]) -> list[Finding]:
    """All checks in their order."""
    installed = [*_versions(), *_doctor_programs.companions(), *_whose_ray(), *_doctor_programs.on_path()]
    machine = [*_hardware(), *_files(), *_doctor_storage.spilling(), *_kernel(), *_doctor_ports.of_machine(ports)]
    return [*installed, *machine, *_cluster(address)]


def in_words(found: list[Finding]) -> str:
    """A line for each check; what to do stands below those that warn."""
    width = max(len(one.check) for one in found)
    lines = []
    for one in found:
        begin = f"{'ok     ' if one.is_ok else 'warning'}  {one.check:<{width}}  "
        indent = " " * len(begin)
        # Paths and commands stay whole, to be copied, however wide the terminal is.
        wrap = functools.partial(textwrap.wrap, width=WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)
        lines += wrap(one.found, initial_indent=begin)
        if one.advice:
            lines += wrap(one.advice, initial_indent=indent)
    warnings = sum(not one.is_ok for one in found)
    lines += ["", "Everything is as it should be." if not warnings else f"{warnings} warning{'s' if warnings > 1 else ''}."]
    return "\n".join(lines)


def _port(given: str) -> int:
    if not given.isdecimal() or not 0 < int(given) < 1 << 16:
        raise argparse.ArgumentTypeError(f"`{given}` is no port: give a number from 1 to 65535")
    return int(given)


def main(arguments: list[str]) -> int:
    """Prints what the checks found; the status is 1 where one of them warns."""
    words = "Checks the installation and this machine, and says for each warning what to do. The exit status is 1 where there is one."
    parser = argparse.ArgumentParser(prog="oxiray doctor", description=words)
    parser.add_argument(
        "--address",
        default=os.environ.get("RAY_ADDRESS") or None,
        help="a cluster, or the port of a head, that is tried too; RAY_ADDRESS where it is left out",
    )
    parser.add_argument(
        "--port",
        action="append",
        type=_port,
        default=[],
        help="a further port of this machine that is looked at, such as one for --node-manager-port; may be given several times",
    )
    parser.add_argument("--json", action="store_true", help="prints the checks as JSON")
    given = parser.parse_args(arguments)
    found = findings(given.address, given.port)
    is_ok = all(one.is_ok for one in found)
    print(json.dumps({"ok": is_ok, "checks": [asdict(one) for one in found]}, indent=2) if given.json else in_words(found))
    return 0 if is_ok else 1
