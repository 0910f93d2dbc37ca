"""Small conversions and look-ups that programs take from Ray, for compatibility."""

from __future__ import annotations

import importlib
import inspect
import os
import random
import string
import tempfile
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import TYPE_CHECKING, Any

from oxiray import _events, _missing
from oxiray._private.utils import binary_to_hex, get_system_memory, hex_to_binary

if TYPE_CHECKING:
    import asyncio

_background: set[Any] = set()


def env_bool(key: str, default: bool) -> bool:
    """Whether the environment variable is `1` or `true`, in any case; `default` where it is not set."""
    text = os.environ.get(key)
    return default if text is None else text.lower() in ("1", "true")


def env_integer(key: str, default: int) -> int:
    """The environment variable as a whole number; `default` where it is not set, or none."""
    text = os.environ.get(key, "")
    try:
        return int(text)
    except ValueError:
        return default


def env_float(key: str, default: float) -> float:
    """The environment variable as a number; `default` where it is not set, or none."""
    text = os.environ.get(key, "")
    try:
        return float(text)
    except ValueError:
        return default


def decode(byte_str: bytes, allow_none: bool = False, encode_type: str = "utf-8") -> str:
    """The text of these bytes; empty for None where that is allowed. Raises `ValueError` for what is not `bytes`."""
    if byte_str is None and allow_none:
        return ""
    if not isinstance(byte_str, bytes):
        raise ValueError(f"The argument {byte_str!r} must be a bytes object")
    return byte_str.decode(encode_type)


def import_module_and_attr(full_path: str, *, reload_module: bool = False) -> tuple[ModuleType, Any]:
    """The module and what it has, of `package.module.name` or `package.module:name`. Raises `ValueError` for other forms."""
    if not full_path or full_path.count(":") > 1:
        raise ValueError(f"{full_path!r} is no import path: write 'module.name' or 'module:name'")
    module_name, _, name = full_path.partition(":") if ":" in full_path else full_path.rpartition(".")
    if not module_name or not name:
        raise ValueError(f"{full_path!r} is no import path: write 'module.name' or 'module:name'")
    module = importlib.import_module(module_name)
    if reload_module:
        module = importlib.reload(module)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part)
    return module, found


def import_attr(full_path: str, *, reload_module: bool = False) -> Any:
    """What `package.module.name` or `package.module:name` names."""
    return import_module_and_attr(full_path, reload_module=reload_module)[1]


def load_class(path: str) -> Any:
    """The class that `package.module.Class` names. Raises `ValueError` for a path without a module."""
    if "." not in path:
        raise ValueError(f"the path of a class is package.module.Class, and {path!r} was given")
    return import_attr(path)


def get_or_create_event_loop() -> asyncio.AbstractEventLoop:
    """The event loop that runs, else that of this thread, else a new one that becomes so."""
    return _events.event_loop()


def run_background_task(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Runs `coroutine` in the loop that runs, and keeps its task until it has ended."""
    import asyncio

    task = asyncio.get_running_loop().create_task(coroutine)
    _background.add(task)
    task.add_done_callback(_background.discard)
    return task


def get_function_args(callable: Callable[..., Any]) -> list[str]:
    """The names of the parameters of a function."""
    return list(inspect.signature(callable).parameters)


def get_random_alphanumeric_string(length: int) -> str:
    """A text of so many random letters and digits."""
    return "".join(random.choices(string.ascii_letters + string.digits, k=length))


def get_default_system_temp_dir() -> str:
    """The folder of temporary files: RAY_TMPDIR, else the system's."""
    return os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()


def reset_ray_address(temp_dir: str | None = None) -> None:
    """Has `init` forget the cluster that was started last: nothing here keeps its address, as `init` looks for one that runs."""


def try_to_create_directory(directory_path: str) -> None:
    """Makes a folder, and those above it, where they are not there."""
    os.makedirs(os.path.expanduser(directory_path), exist_ok=True)


__all__ = [
    "binary_to_hex",
    "decode",
    "env_bool",
    "env_float",
    "env_integer",
    "get_default_system_temp_dir",
    "get_function_args",
    "get_or_create_event_loop",
    "get_random_alphanumeric_string",
    "get_system_memory",
    "hex_to_binary",
    "import_attr",
    "import_module_and_attr",
    "load_class",
    "reset_ray_address",
    "run_background_task",
    "try_to_create_directory",
]

__getattr__ = _missing.attributes(__name__)
