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
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0))


def get_system_memory() -> int:
    """The memory of this machine, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


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
    """Whether Ray tests itself, which Ray's libraries ask: never."""
    return False


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
