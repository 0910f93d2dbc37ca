"""Files that lie in storage which speaks S3: fetched by the program that spills objects there, too.

The program reads the credentials from this process's environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL and the others).
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from oxiray import _cli


class StorageError(OSError):
    """A file cannot be fetched."""


def fetch(url: str, path: Path) -> None:
    """Fetches a file to `path`, whole or not at all. Raises `StorageError` with what to do."""
    program = _cli.native_binary().with_name("oxiray-storage")
    try:
        done = subprocess.run([program, "get", url, path], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    except OSError as error:
        raise StorageError(f"{url} cannot be fetched: {program} cannot be run ({error.strerror}). Reinstall oxiray") from error
    if done.returncode != 0:
        raise StorageError(f"{url} cannot be fetched: {done.stderr.strip().removeprefix('error: ')}")
