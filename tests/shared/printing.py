"""Programs that print, and what is known of what they printed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any


def program(tmp_path: Path, body: str, **environment: str) -> tuple[str, str]:
    """What a program prints to each of its streams; its sessions lie in `tmp_path`."""
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(body))
    own = {**os.environ, "RAY_TMPDIR": str(tmp_path), **environment}
    own.pop("OXIRAY_TMPDIR", None)
    ended = subprocess.run([sys.executable, str(file)], env=own, capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == 0, (ended.stdout, ended.stderr)
    return ended.stdout, ended.stderr


def of_worker(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of files of workers."""
    return [row for row in rows if row["worker_id"] is not None]
