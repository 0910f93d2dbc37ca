"""The help of `oxiray` and the completions that it gives to shells: whole, and no wider than a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path

import commands
import pytest
from oxiray import _cli

COLUMNS = 80


def named_below_help() -> list[str]:
    """The commands of the Python package that the help of the native program names."""
    _, _, below = commands.run("--help").partition("Commands of the Python package `oxiray`:\n")
    return re.findall(r"^  ([a-z-]+)  +\S", below, re.MULTILINE)


def test_help_names_the_commands_that_python_runs() -> None:
    assert named_below_help() == sorted(_cli.PYTHON_COMMANDS)


def on_a_terminal(*arguments: str) -> str:
    """What a command prints on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    command = [sys.executable, "-c", commands._PROGRAM, *arguments]
    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
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
    return b"".join(pieces).decode()


@pytest.mark.parametrize("words", [(), ("start",), ("job", "submit"), ("list",), ("drain",), ("doctor",), ("logs",)], ids=" ".join)
def test_help_is_no_wider_than_the_terminal(words: tuple[str, ...]) -> None:
    told = on_a_terminal(*words, "--help")
    assert "-h, --help" in told
    assert [line for line in told.splitlines() if len(line) > COLUMNS] == []


def completed(line: str, tmp_path: Path) -> list[str]:
    """What bash offers at the end of a line."""
    script = tmp_path / "completions"
    script.write_text(commands.run("completions", "bash"))
    words = line.split(" ")
    setting = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _oxiray oxiray '{words[-1]}' '{words[-2]}'"
    program = f'source {script}; {setting}; echo "${{COMPREPLY[@]}}"'
    bash = shutil.which("bash")
    assert bash is not None
    return subprocess.run([bash, "--norc", "-c", program], capture_output=True, text=True, check=True).stdout.split()


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    assert completed("oxiray st", tmp_path) == ["start", "stop", "status", "stack"]
    # The daemon and what it runs are no commands for users.
    assert completed("oxiray d", tmp_path) == ["drain", "drain-node", "device", "dashboard", "doctor"]
    assert completed("oxiray job sub", tmp_path) == ["submit"]
    assert completed("oxiray start --token", tmp_path) == ["--token-file"]


def test_other_shells_are_given_theirs() -> None:
    assert commands.run("completions", "zsh").startswith("#compdef oxiray")
    assert "complete -c oxiray" in commands.run("completions", "fish")
    assert "possible values: bash" in commands.run("completions", "tcsh", check=False)
