"""Clean systems, made by debootstrap: Debian 12 of a machine with Python in it, and neither a compiler nor anything of ours.

A system is made once, below `.build/packages`. What runs in it has namespaces of its own, with what it writes in memory: its
mounts, processes and files end with it, however it ends.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SYSTEMS = ROOT / ".build" / "packages"
MIRROR = "http://deb.debian.org/debian"
#: Names of machines, as wheels and the kernel have them and as Debian does.
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
BINFMT = Path("/proc/sys/fs/binfmt_misc")
HANDLER = "oxiray-test-aarch64"
#: What the kernel knows a program of aarch64 by: the first bytes of its file, and which of their bits count.
MAGIC = rb"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
MASK = rb"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
ENTER = """
mount -t tmpfs tmpfs "$1/scratch"
mkdir "$1/scratch/upper" "$1/scratch/work" "$1/scratch/root"
root=$1/scratch/root
mount -t overlay overlay -o "lowerdir=$1/system,upperdir=$1/scratch/upper,workdir=$1/scratch/work" "$root"
mkdir "$root/given"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mount --bind "$2" "$root/given"
exec chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LANG=C.UTF-8 /bin/sh -euc "$3"
"""


@dataclass(frozen=True)
class CleanDebian:
    """A system for one machine."""

    folder: Path

    def run(self, script: str, given: Path, timeout_s: float) -> subprocess.CompletedProcess[str]:
        """Runs a script of the shell in the system, where the folder `given` is `/given`."""
        (self.folder / "scratch").mkdir(exist_ok=True)
        command = [*NAMESPACES, "sh", "-euc", ENTER, "enter", str(self.folder), str(given), script]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)


def clean_debian(machine: str) -> CleanDebian:
    """The system for a machine, made where it is not there yet: in less than a minute for this one, in several for another."""
    folder = SYSTEMS / DEBIAN[machine]
    system = folder / "system"
    if not system.is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        making = folder / "making"
        chosen = ["--variant=minbase", f"--arch={DEBIAN[machine]}", "--include=python3,python3-venv"]
        foreign = ["--foreign"] if machine != platform.machine() else []
        in_namespaces("debootstrap", *chosen, *foreign, "bookworm", str(making), MIRROR)
        if foreign:
            in_namespaces("chroot", str(making), "/debootstrap/debootstrap", "--second-stage")
        making.rename(system)
    return CleanDebian(folder)


def in_namespaces(*command: str) -> None:
    """Runs what makes a system; whatever it mounts is gone when it ends."""
    done = subprocess.run([*NAMESPACES, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)} ended with status {done.returncode}:\n{done.stdout[-4000:]}"


@contextmanager
def emulated(machine: str) -> Iterator[None]:
    """Has the kernel start programs of another machine under qemu, in every namespace, as long as this holds."""
    if machine == platform.machine():
        yield
        return
    with binfmt():
        ours = BINFMT / HANDLER
        if ours.exists():
            ours.write_text("-1")  # of a run that was killed
        qemu = emulator(machine)
        # `F` opens qemu now, so that it is found wherever a program changes its root to.
        line = f":{HANDLER}:M::".encode() + MAGIC + b":" + MASK + f":{qemu}:F".encode()
        (BINFMT / "register").write_bytes(line)
        try:
            yield
        finally:
            ours.write_text("-1")


def emulator(machine: str) -> Path:
    """Qemu 10 or newer: older ones refuse `PR_SET_CHILD_SUBREAPER`, without which no node watches over its processes."""
    folder = SYSTEMS / "qemu"
    program = folder / "usr" / "bin" / f"qemu-{machine}"
    if not program.exists():
        subprocess.run([ROOT / "scripts" / "debian-package", folder, "qemu-user", "bookworm-backports"], check=True)
    return program


@contextmanager
def binfmt() -> Iterator[None]:
    """The kernel's list of programs that start others, mounted where it is not."""
    if (BINFMT / "register").exists():
        yield
        return
    subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", str(BINFMT)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(BINFMT)], check=True)


def is_root() -> bool:
    return os.geteuid() == 0
