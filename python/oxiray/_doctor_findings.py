"""What a check of `oxiray doctor` found, and how it asks the native program."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from oxiray import _cli

#: How long a command or a connection may take.
LIMIT_S = 10.0
#: The statuses of a program that did not end in time, and of one that cannot be started, as those of `timeout` and of shells.
TIMED_OUT, NOT_STARTED = 124, 127


@dataclass(frozen=True)
class Finding:
    """What a check found: whether it is as it should be, and otherwise what to do."""

    check: str
    is_ok: bool
    found: str
    advice: str = ""


def ok(check: str, found: str) -> Finding:
    """What is as it should be."""
    return Finding(check, True, found)


def warning(check: str, found: str, advice: str) -> Finding:
    """What is not, and what to do."""
    return Finding(check, False, found, advice)


def output_of(program: Path, *arguments: str, told: str = "", limit_s: float = LIMIT_S) -> tuple[int, str]:
    """The status of a program that is told something, and what it prints; the reason where it cannot be run."""
    try:
        done = subprocess.run(
            [program, *arguments], input=told, capture_output=True, text=True, errors="replace", check=False, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return TIMED_OUT, f"it did not answer within {limit_s:g} s"
    except OSError as error:
        return NOT_STARTED, error.strerror or str(error)
    return done.returncode, done.stdout.strip() if done.returncode == 0 else done.stderr.strip()


def command(*arguments: str) -> tuple[int, str]:
    """The status of a command of the native program, and what it prints; the reason where it cannot be run."""
    return output_of(_cli.native_binary(), *arguments)
