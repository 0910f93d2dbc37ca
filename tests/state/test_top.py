"""`oxiray top` on a terminal: keys that show what runs, and that end it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import commands
import pytest
from watching import wait_until

import ray
from ray.util import state

PROGRAM = "import sys; sys.argv[0] = 'oxiray'; from oxiray._cli import main; main()"
PATIENCE_S = 30
ROWS, COLUMNS = 30, 120
#: A cursor that is moved, a screen that is cleared, any other sequence, or a letter.
PIECE = re.compile(
    r"\x1b\[(?P<place>\d+;\d+)H|\x1b\[(?P<clears>2J)|\x1b\[[0-9;?]*[A-Za-z]|\x1b[()=>78][A-Z0-9]?|[\r\n]|(?P<letter>[^\x1b])"
)


class Terminal:
    """`oxiray top` on a terminal of its own."""

    def __init__(self, *words: str) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = os.environ | {"TERM": "xterm", "NO_COLOR": "1"}
        command = [sys.executable, "-c", PROGRAM, "top", *words]
        self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        self.rest, self.at = "", (0, 0)
        self.rows = [[" "] * COLUMNS for _ in range(ROWS)]

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def awaits(self, text: str) -> None:
        """Reads until this stands on the screen."""
        until = time.monotonic() + PATIENCE_S
        while not any(text in "".join(row) for row in self.rows):
            left = until - time.monotonic()
            assert left > 0, "\n".join("".join(row).rstrip() for row in self.rows)
            if select.select([self.ours], [], [], left)[0]:
                self.rest += os.read(self.ours, 1 << 16).decode(errors="replace")
                self.draw()

    def draw(self) -> None:
        """Only cells that changed are written: each piece of text stands behind the place where it goes."""
        while piece := PIECE.match(self.rest):
            self.rest = self.rest[piece.end() :]
            place, clears, letter = piece.group("place", "clears", "letter")
            if place:
                row, column = place.split(";")
                self.at = (int(row) - 1, int(column) - 1)
            elif clears:
                self.rows = [[" "] * COLUMNS for _ in range(ROWS)]
            elif letter and self.at[0] < ROWS and self.at[1] < COLUMNS:
                self.rows[self.at[0]][self.at[1]] = letter
                self.at = (self.at[0], self.at[1] + 1)


@ray.remote
class Keeper:
    def pid(self) -> int:
        print("a word of the keeper")
        return os.getpid()


@ray.remote(max_retries=0)
def spins(mark: str) -> None:
    Path(mark).touch()
    while True:
        time.sleep(0.02)


@pytest.fixture
def top() -> Iterator[Callable[..., Terminal]]:
    ray.shutdown()
    ray.init(num_cpus=2)
    made: list[Terminal] = []

    def start(*words: str) -> Terminal:
        made.append(Terminal(f"--address={ray.get_runtime_context().gcs_address}", *words))
        return made[-1]

    yield start
    for terminal in made:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.ours)
    ray.shutdown()


def digits(identifier: str) -> str:
    return identifier[:8]


def test_keys_cancel_a_task_show_a_stack_and_kill_an_actor(top: Callable[..., Terminal], tmp_path: Path) -> None:
    keeper = Keeper.remote()
    assert ray.get(keeper.pid.remote()) > 0
    mark = tmp_path / "mark"
    task = spins.remote(str(mark))
    wait_until(mark.exists)
    terminal = top("--view=tree")
    terminal.awaits("Keeper")
    terminal.awaits("spins")
    # The rows that are left: the job, and its task.
    terminal.press("/spins\r\x1b[BK")
    terminal.awaits("to confirm")
    terminal.press(f"{digits(task.task_id().hex())}\r")
    with pytest.raises(ray.exceptions.TaskCancelledError):
        ray.get(task, timeout=PATIENCE_S)
    terminal.awaits("its owner cancels it")
    # Any key closes what was said; a name is taken back, and the other typed.
    terminal.press("x/" + "\x7f" * len("spins") + "Keeper\r\x1b[Bs")
    terminal.awaits("MainThread")
    terminal.press("xl")
    terminal.awaits("a word of the keeper")
    terminal.press("xK")
    [row] = state.list_actors()
    terminal.awaits("to confirm")
    terminal.press(f"{digits(row.actor_id)}\r")
    wait_until(lambda: state.list_actors()[0].state == "DEAD")
    cause = state.list_actors(detail=True)[0].death_cause
    assert "killed by hand: in `oxiray top`" in str(cause), cause
    terminal.awaits("is not made anew")
    terminal.press("q")
    assert terminal.process.wait(PATIENCE_S) == 0


def test_the_tree_is_printed_too(top: Callable[..., Terminal], tmp_path: Path) -> None:
    keeper = Keeper.remote()
    ray.get(keeper.pid.remote())
    mark = tmp_path / "mark"
    task = spins.remote(str(mark))
    wait_until(mark.exists)
    address = f"--address={ray.get_runtime_context().gcs_address}"
    told = commands.run("top", "--once", "--view=tree", "--cols=120", address)
    rows = {line.split()[0]: line for line in told.splitlines()[3:] if line}
    assert rows["job"].startswith("job") and rows["spins"].startswith("  spins") and rows["Keeper"].startswith("  Keeper"), told
    assert digits(task.task_id().hex()) in rows["spins"] and "RUNNING" in rows["spins"], told
    ray.cancel(task)
