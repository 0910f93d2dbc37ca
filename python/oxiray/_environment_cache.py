"""The user's cache of packages and installed environments: where it is, what is in use, what is evicted.

```text
<root>/cache/
  packages/NAME.zip            what programs shipped: written under another name and renamed
  packages/programDIGEST       programs that are their own workers, the same way
  environments/NAME/           installed packages; whole once it holds `complete`
  environments/NAME.lock       locked exclusively while it is made, shared while a daemon uses it
```

Invariants:
1. Nothing is taken as whole that was not finished: packages are renamed into place, environments marked last.
2. Nothing that some process has locked is evicted.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

#: The cache is kept below this size, in bytes, unless `OXIRAY_ENVIRONMENT_CACHE_BYTES` says otherwise.
_CACHE_BYTES_MAX = 10 << 30
_CACHE_VARIABLE = "OXIRAY_ENVIRONMENT_CACHE_BYTES"
#: Marks an environment that is whole; holds its size.
COMPLETE = "complete"


def root() -> Path:
    """The folder of this user's sessions, as the daemon chooses it."""
    chosen = os.environ.get("OXIRAY_TMPDIR") or os.environ.get("RAY_TMPDIR") or "/tmp"
    return Path(chosen) / f"oxiray-{os.geteuid()}"


def folder(cache: Path, kind: str) -> Path:
    """The folder of the cache for `kind`, made where it is missing, and nobody else's."""
    made = cache / kind
    for one in (cache.parent, cache, made):
        one.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = os.lstat(one)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise OSError(
                f"{one} is not a folder that only this user can write to: whoever can could plant code there. Remove it, "
                "or choose another place with OXIRAY_TMPDIR"
            )
    return made


def limit() -> int:
    """The most bytes that the cache keeps. Raises `ValueError` where the variable makes no sense."""
    text = os.environ.get(_CACHE_VARIABLE)
    if not text:
        return _CACHE_BYTES_MAX
    if not text.isdigit():
        raise ValueError(f"the environment variable {_CACHE_VARIABLE} is {text!r}, but must be a number of bytes")
    return int(text)


def is_whole(environment: Path) -> bool:
    """Whether an environment was finished."""
    return (environment / COMPLETE).is_file()


def mark_whole(environment: Path) -> None:
    """Says that an environment is finished, and how large it is."""
    beside = environment / f"{COMPLETE}.new"
    beside.write_text(json.dumps({"bytes": size_of(environment)}))
    beside.rename(environment / COMPLETE)


def size_of(tree: Path) -> int:
    """The bytes of everything below `tree`."""
    total = 0
    for at, _, names in os.walk(tree):
        for name in names:
            try:
                total += os.lstat(os.path.join(at, name)).st_size
            except OSError:
                continue
    return total


def touch(path: Path) -> None:
    """Notes that something is used: what was used last is evicted last."""
    try:
        os.utime(path)
    except OSError:
        pass


def evict(cache: Path, bytes_max: int) -> list[str]:
    """Removes what the dead left unfinished, and what was used longest ago until the rest fits; returns the names."""
    entries = sorted([*_environments(cache), *_packages(cache)])
    total = sum(size for _, size, _ in entries)
    gone = []
    for used, size, path in entries:
        if total <= bytes_max and used > 0:
            break
        if _remove(path):
            total -= size
            gone.append(path.name)
    return gone


def _environments(cache: Path) -> Iterator[tuple[float, int, Path]]:
    for path in (cache / "environments").glob("*/"):
        try:
            marker = path / COMPLETE
            yield marker.stat().st_mtime, int(json.loads(marker.read_text())["bytes"]), path
        except (OSError, ValueError, KeyError):
            # Half made: by somebody who has it locked, or by somebody who died.
            yield 0.0, size_of(path), path


def _packages(cache: Path) -> Iterator[tuple[float, int, Path]]:
    packages = cache / "packages"
    for path in (*packages.glob("*.zip"), *packages.glob("program*[0-9a-f]")):
        try:
            found = path.stat()
        except OSError:
            continue
        yield found.st_mtime, found.st_size, path


def _remove(path: Path) -> bool:
    """Removes an entry unless somebody has it locked."""
    is_package = path.parent.name == "packages"
    guard = path if is_package else path.with_name(f"{path.name}.lock")
    # A program that runs cannot be opened for writing.
    access = os.O_RDONLY if is_package else os.O_RDWR | os.O_CREAT
    try:
        descriptor = os.open(guard, access | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_package:
            path.unlink()
        else:
            # Without its mark first: what is half removed is not whole.
            (path / COMPLETE).unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
