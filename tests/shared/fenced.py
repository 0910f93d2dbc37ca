"""A recorded machine whose device nodes open, and other users on it: for tests of what fences refuse."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

#: Which device stands for which GPU, by the kernel's numbers.
NUMBERS = [(1, 7), (1, 5)]
NOBODY = 65534


def fences() -> dict[str, Any]:
    """Which mechanisms work here, as `oxiray hardware` says."""
    from oxiray import _cli

    printed = subprocess.run([_cli.native_binary(), "hardware", "--json"], capture_output=True, text=True, check=True)
    return json.loads(printed.stdout)["fences"] or {}


def recorded(folder: Path, with_nodes: bool = True) -> Path:
    """A machine with two GPUs: their nodes are devices that can be opened, or, without rights to make those, files."""
    host = folder / "host"
    (host / "dev").mkdir(parents=True)
    # What CUDA makes at its first call: Landlock is not offered where it is missing.
    (host / "dev" / "nvidia-uvm").write_text("")
    for minor, (major, number) in enumerate(NUMBERS):
        node = host / "dev" / f"nvidia{minor}"
        if with_nodes:
            os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(major, number))
            node.chmod(0o666)
        else:
            node.write_text("")
    gpus = [f"NVIDIA A100|GPU-{index}|00000000:0{index + 1}:00.0|85899345920|0|" for index in range(2)]
    (host / "nvml.txt").write_text("\n".join(["driver=550.54.15", *gpus, "minor=0:0", "minor=1:1", ""]))
    nodes = {f"/dev/nvidia{minor}": f"{major}:{number}" for minor, (major, number) in enumerate(NUMBERS)}
    described = {"about": "Two GPUs whose nodes open.", "nvml": {"answers_file": "nvml.txt"}, "nodes": nodes}
    (host / "host.json").write_text(json.dumps(described))
    return host


#: Whom a ruleset of Landlock is for: where cgroups are mounted read-only, as in containers, and a plain user.
HELD = ["read-only cgroups", "nobody"]
#: Makes all cgroups read-only in a mount namespace of its own, and becomes what follows.
_READ_ONLY = """
import os, subprocess, sys
for line in open("/proc/self/mountinfo"):
    before, _, after = line.partition(" - ")
    if after.split()[0] in ("cgroup", "cgroup2"):
        subprocess.run(["mount", "-o", "remount,bind,ro", before.split()[4]], check=True)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def reachable() -> list[str]:
    """What a command begins with so that others than root reach the interpreter, which may lie in a home of root's."""
    prefix = Path(sys.base_prefix).resolve()
    closed = [above for above in reversed(prefix.parents) if not above.stat().st_mode & stat.S_IXOTH]
    if not closed:
        return []
    script = 'mount --bind "$1" "$3" && mount -t tmpfs -o mode=755 tmpfs "$2" && mkdir -p "$1" && mount --bind "$3" "$1" && shift 3 && exec "$@"'
    # In a mount namespace of its own, where nobody else has something there.
    return ["unshare", "--mount", "sh", "-c", script, "sh", str(prefix), str(closed[0]), "/mnt"]


def reachable_interpreter() -> tuple[str, dict[str, str]]:
    """An interpreter that this user can start, and the variables by which it finds the packages of this one: `setpriv` lets a
    process begin with an interpreter in a home of root's, but none of its children."""
    if os.access(sys.executable, os.X_OK):
        return sys.executable, {}
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = shutil.which(name, path=os.pathsep.join(["/usr/local/bin", "/usr/bin"]))
    return found or sys.executable, {"PYTHONPATH": sysconfig.get_paths(vars={"base": sys.prefix})["purelib"]}


def held(who: str, command: list[str]) -> list[str]:
    """A command as that user, or in such a container."""
    if who == "nobody":
        return [*reachable(), "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]
    return ["unshare", "--mount", sys.executable, "-c", _READ_ONLY, *command]
