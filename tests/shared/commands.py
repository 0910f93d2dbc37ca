"""The command line, run as a user runs it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping

COLUMNS = 80

_PROGRAM = "import sys; sys.argv[0] = 'oxiray'; from oxiray._cli import main; main()"


def run(*arguments: str, check: bool = True) -> str:
    """What `oxiray ARGUMENTS` prints; with `check=False`, what it says when it fails, as it must."""
    command = [sys.executable, "-c", _PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert (done.returncode == 0) == check, done.stderr
    return done.stdout if check else done.stderr


def on_a_terminal(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """What a command prints on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    command = [sys.executable, "-c", _PROGRAM, *arguments]
    variables = {name: value for name, value in (environment or os.environ).items() if name not in ("COLUMNS", "LINES")}
    # Without NO_COLOR, a variable such as CI would bring escape sequences, which have no width.
    variables |= {"TERM": "dumb", "NO_COLOR": "1"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=variables):
        os.close(theirs)
        pieces = []
        while True:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            pieces.append(piece)
    os.close(ours)
    return b"".join(pieces).decode().replace("\r\n", "\n")
