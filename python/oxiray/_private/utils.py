"""Conversions that libraries take from here."""

from __future__ import annotations

import os
import pwd
import threading
from pathlib import Path
from typing import Any

from oxiray import _missing
from oxiray._core import ObjectRef, TaskID


def binary_to_hex(identifier: bytes) -> str:
    """An identifier's bytes as hexadecimal digits."""
    return identifier.hex()


def hex_to_binary(hex_identifier: str | bytes) -> bytes:
    """The bytes that hexadecimal digits stand for."""
    return bytes.fromhex(hex_identifier if isinstance(hex_identifier, str) else hex_identifier.decode())


def get_num_cpus(override_docker_cpu_warning: bool = False, truncate: bool = True) -> float:
    """The processors that this process may use: those of the machine, or fewer where its control group has a quota.

    A part of one counts as none, unless `truncate` is off or it is the only one. Nothing is warned of, with
    `override_docker_cpu_warning` or without.
    """
    count: float = len(os.sched_getaffinity(0))
    for folder in _control_groups("cpu"):
        quota, period = [*_words(folder / "cpu.max"), "", ""][:2]
        if not period:
            quota, period = ((_words(folder / f"cpu.cfs_{name}_us") or [""])[0] for name in ("quota", "period"))
        if quota.isdigit() and period.isdigit():
            count = min(count, int(quota) / int(period))
    return max(int(count), 1) if truncate else count


def _control_groups(controller: str) -> list[Path]:
    """The folders of this process's control group and of those above it, of the second version and of the first."""
    found: list[Path] = []
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            root = Path("/sys/fs/cgroup", controllers)
            own = root / group.lstrip("/")
            # In a container the path may be one of the machine's: then its group is the root here.
            found += [folder for folder in (own, *own.parents) if folder.is_relative_to(root)]
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def _words(file: Path) -> list[str]:
    return _text(file).split()


def get_system_memory() -> int:
    """The memory of this machine, or less where this process's control group is limited to that, in bytes."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    files = [folder / name for folder in _control_groups("memory") for name in ("memory.max", "memory.limit_in_bytes")]
    return min([whole, *(int(word) for file in files for word in _words(file)[:1] if word.isdigit())])


def get_user() -> str:
    """The user that this process runs as; empty where that has no name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def is_main_thread() -> bool:
    """Whether this is the thread that the program began in."""
    return threading.current_thread() is threading.main_thread()


def is_in_test() -> bool:
    """Whether this process runs a test of pytest's, or belongs to a build of Buildkite's, which Ray's libraries ask."""
    return "PYTEST_CURRENT_TEST" in os.environ or "BUILDKITE" in os.environ


def update_envs(env_vars: dict[str, str]) -> None:
    """Sets variables of the environment, in which `${NAME}` stands for what was set before."""
    for name, value in env_vars.items():
        os.environ[name] = os.path.expandvars(value)


def binary_to_object_ref(binary_object_ref: bytes) -> ObjectRef[Any]:
    """The reference of these bytes, which this process knows."""
    return ObjectRef(binary_object_ref)


def binary_to_task_id(binary_task_id: bytes) -> TaskID:
    """The task of these bytes."""
    return TaskID(binary_task_id)


def get_directory_size_bytes(path: str | Path = ".") -> int:
    """The bytes of the files below a folder."""
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file() and not file.is_symlink())


#: The largest signed number of 32 bits.
INT32_MAX = 2**31 - 1

__all__ = [
    "INT32_MAX",
    "binary_to_hex",
    "binary_to_object_ref",
    "binary_to_task_id",
    "get_directory_size_bytes",
    "get_num_cpus",
    "get_system_memory",
    "get_user",
    "hex_to_binary",
    "is_in_test",
    "is_main_thread",
    "update_envs",
]

__getattr__ = _missing.attributes(__name__)
