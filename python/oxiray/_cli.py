"""The `oxiray` command of a Python installation: hands over to the native binary that travels in the wheel.

The binary replaces this process, so exit statuses and signals are its own. `OXIRAY_BINARY` names another one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn


def native_binary() -> Path:
    """The native `oxiray`: the one `OXIRAY_BINARY` names, else the one beside this module."""
    chosen = os.environ.get("OXIRAY_BINARY")
    return Path(chosen) if chosen else Path(__file__).parent / "_native" / "oxiray"


def main() -> NoReturn:
    """Run the native binary with this command's arguments."""
    binary = native_binary()
    try:
        # Where a program's interpreter is not on this machine, this one stands for it.
        variables = {"OXIRAY_INTERPRETER": sys.executable, **os.environ}
        os.execve(binary, ["oxiray", *sys.argv[1:]], variables)
    except OSError as error:
        why = f"cannot run the native binary {binary}: {error.strerror}"
        sys.exit(f"error: {why}\nhint: reinstall the `oxiray` wheel, or set `OXIRAY_BINARY` to a built `oxiray`")


if __name__ == "__main__":
    main()
