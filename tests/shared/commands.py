"""The command line, run as a user runs it."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = "import sys; sys.argv[0] = 'oxiray'; from oxiray._cli import main; main()"


def run(*arguments: str, check: bool = True) -> str:
    """What `oxiray ARGUMENTS` prints; with `check=False`, what it says when it fails, as it must."""
    command = [sys.executable, "-c", _PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode == 0) == check, done.stderr
    return done.stdout if check else done.stderr
