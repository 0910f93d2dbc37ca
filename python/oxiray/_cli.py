"""The `oxiray` command of a Python installation: hands over to the native binary that travels in the wheel.

The binary replaces this process, so exit statuses and signals are its own. `OXIRAY_BINARY` names another one. A few
commands are Python's own.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import NoReturn

#: Commands that Python runs, each with the function that does and the options it takes.
PYTHON_COMMANDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "compat": ("oxiray.compat:main", ("--format", "--json")),
    "debug": ("oxiray._commands:debug", ("--address", "--json")),
    "doctor": ("oxiray._doctor:main", ("--address", "--json", "--port")),
    "kill-actor": ("oxiray._commands:kill_actor", ("--address", "--force", "--name", "--namespace", "--no-restart")),
    "ray": ("oxiray._libraries.command:main", ("--as", "--from", "--output", "--untested")),
    "timeline": ("oxiray._commands:timeline", ("--address", "--filename")),
}


def native_binary() -> Path:
    """The native `oxiray`: the one `OXIRAY_BINARY` names, else the one beside this module."""
    chosen = os.environ.get("OXIRAY_BINARY")
    return Path(chosen) if chosen else Path(__file__).parent / "_native" / "oxiray"


def interpreter_variable() -> dict[str, str]:
    """By what a daemon knows which interpreter runs its own Python, and stands for one that is not on this machine."""
    return {"OXIRAY_INTERPRETER": os.environ.get("OXIRAY_INTERPRETER", sys.executable)}


def main(called: str = "oxiray") -> NoReturn:
    """Runs the native binary with this command's arguments, under the name that the command was called by."""
    if sys.argv[1:] and sys.argv[1] in PYTHON_COMMANDS:
        module, _, function = PYTHON_COMMANDS[sys.argv[1]][0].partition(":")
        sys.exit(getattr(importlib.import_module(module), function)(sys.argv[2:]))
    binary = native_binary()
    try:
        os.execve(binary, [called, *sys.argv[1:]], {**os.environ, **interpreter_variable()})
    except OSError as error:
        why = f"cannot run the native binary {binary}: {error.strerror}"
        sys.exit(f"error: {why}\nhint: reinstall the `oxiray` wheel, or set `OXIRAY_BINARY` to a built `oxiray`")


if __name__ == "__main__":
    main()
