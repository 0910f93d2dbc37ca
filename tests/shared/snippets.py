"""Blocks of code in the pages of the documentation: found, run, and compared with the output that the page gives.

A page's `python` blocks are one program, in their order. A `text` block right after one is what it prints; `...` in it stands
for anything. Lines of workers, `(name pid=...) text`, come when they come: they are looked for in all of the page's output.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FENCE = re.compile(r"^( *)```([\w-]*)\n(.*?)^\1```[ ]*$", re.MULTILINE | re.DOTALL)
OF_WORKER = re.compile(r"^\([^\n]* pid=[^\n)]*\) ")
#: Printed after each block: the letter that separates records.
END_OF_BLOCK = "\x1e"
#: How long a page's program may take.
TIMEOUT_S = 100


@dataclass(frozen=True)
class Block:
    """A block of a page: its language, its text, and the output that the page gives for it."""

    language: str
    text: str
    expected: str | None


def blocks(markdown: str) -> list[Block]:
    """The blocks of a page, but for those that are the output of the one before."""
    found = list(FENCE.finditer(markdown))
    is_output = [
        fence[2] == "text" and before[2] == "python" and not markdown[before.end() : fence.start()].strip()
        for before, fence in zip(found, found[1:], strict=False)
    ]
    outputs = [False, *is_output]
    return [
        Block(fence[2], textwrap.dedent(fence[3]), textwrap.dedent(found[i + 1][3]) if [*outputs, False][i + 1] else None)
        for i, fence in enumerate(found)
        if not outputs[i]
    ]


def failures(
    markdown: str,
    folder: Path,
    *,
    runs: Callable[[Block], bool] = lambda block: True,
    before: Callable[[Block], str] = lambda block: "",
) -> list[str]:
    """Runs a page's `python` blocks, or some of them, in a fresh process, and says where the output is not what the page gives.

    What comes `before` a block is a program of the tests, which makes what the block needs.
    """
    program = [block for block in blocks(markdown) if block.language == "python" and runs(block)]
    file = folder / "page.py"
    file.write_text("\n".join(f"{before(block)}{block.text}\nprint({END_OF_BLOCK!r}, flush=True)" for block in program))
    environment = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "OXIRAY_TMPDIR")}
    environment["RAY_TMPDIR"] = str(folder)
    done = subprocess.run(
        [sys.executable, str(file)], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    if done.returncode != 0:
        return [f"the page's program ended with status {done.returncode}:\n{done.stdout}\n{done.stderr}"]
    return compared(program, done.stdout)


def compared(program: list[Block], printed: str) -> list[str]:
    """What differs between the output that the blocks of a page promise, and what was printed."""
    checker = doctest.OutputChecker()
    everything = [line for line in printed.replace(END_OF_BLOCK, "").splitlines() if OF_WORKER.match(line)]
    found = []
    for number, (block, part) in enumerate(zip(program, printed.split(END_OF_BLOCK), strict=False), 1):
        if block.expected is None:
            continue
        expected = block.expected.splitlines()
        # A line of a worker may come between what the program prints and the end of that line.
        got = "\n".join(line for line in part.splitlines() if not OF_WORKER.match(line)).strip()
        want = "\n".join(line for line in expected if not OF_WORKER.match(line)).strip()
        if not checker.check_output(f"{want}\n", f"{got}\n", doctest.ELLIPSIS):
            found.append(f"block {number} printed\n{got}\nand not\n{want}\nof\n{block.text}")
        for line in expected:
            if OF_WORKER.match(line) and not any(checker.check_output(line, one, doctest.ELLIPSIS) for one in everything):
                found.append(f"no worker printed\n{line}\nof block {number}, but\n{everything}")
    return found
