"""Folders and files of a program as packages that workers on any machine unpack.

A package is named by what is in it, so that the same content is shipped and unpacked once.

Invariants:
1. Packages are kept by the cache that programs of every language share (`crates/client/src/package_cache.rs`).
2. Nothing is unpacked outside of the folder it is meant for, and nothing but files and folders is unpacked.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from oxiray import _core, _ignore_rules

#: The largest package, in bytes of its content, unless `OXIRAY_PACKAGE_BYTES_MAX` says otherwise.
_PACKAGE_BYTES_MAX = 512 << 20
_LIMIT_VARIABLE = "OXIRAY_PACKAGE_BYTES_MAX"
#: Left out of working directories where nothing else is said, as in Ray.
_DEFAULT_EXCLUDES = ".git,.venv,venv,__pycache__"
_EXCLUDES_VARIABLE = "RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES"
_GITIGNORE_VARIABLE = "RAY_RUNTIME_ENV_IGNORE_GITIGNORE"
#: How many of the largest files an error names.
_FILES_NAMED = 5
_COPY_BYTES = 1 << 20
#: What the names of programs begin with, which are files as they are.
_PROGRAM = "program"


def limit() -> int:
    """The most bytes of one package."""
    text = os.environ.get(_LIMIT_VARIABLE)
    if not text:
        return _PACKAGE_BYTES_MAX
    if not text.isdigit():
        raise ValueError(f"the environment variable {_LIMIT_VARIABLE} is {text!r}, but must be a number of bytes")
    return int(text)


def default_excludes() -> list[str]:
    """What a working directory leaves out where nothing else is said."""
    return [name for name in os.environ.get(_EXCLUDES_VARIABLE, _DEFAULT_EXCLUDES).split(",") if name]


def ship_folder(folder: Path, excludes: list[str], *, within: str = "") -> str:
    """Packs a folder, its content below `within`; returns the package's name."""
    folder = folder.resolve()
    entries = sorted(_files(folder, excludes))
    _check_size(folder, [(size, name) for name, _, size in entries])
    digest = hashlib.sha256(within.encode())
    for name, path, size in entries:
        digest.update(f"\0{name}\0{size}\0{_mode(path):o}\0".encode())
        with open(path, "rb") as file:
            while block := file.read(_COPY_BYTES):
                digest.update(block)
    members = [(str(PurePosixPath(within, name)), path) for name, path, _ in entries]
    return _store(digest.hexdigest()[:32], members)


def ship_file(path: Path) -> str:
    """Packs one file, such as a module; returns the package's name."""
    path = path.resolve()
    _check_size(path, [(path.stat().st_size, path.name)])
    digest = hashlib.sha256(f"file\0{path.name}\0".encode() + path.read_bytes())
    return _store(digest.hexdigest()[:32], [(path.name, path)])


def ship_archive(path: Path, *, strips_folder: bool = False) -> str:
    """Takes over a zip file or wheel; `strips_folder` leaves out the one folder that everything in it lies in."""
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = [(entry.file_size, entry.filename) for entry in archive.infolist()]
            names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
    except (zipfile.BadZipFile, OSError) as error:
        raise ValueError(f"{path} cannot be read as a zip file: {error}") from None
    _check_size(path, sizes)
    for name in names:
        _check_member(name, path)
    top = {PurePosixPath(name).parts[0] for name in names if name}
    is_in_one_folder = len(top) == 1 and all("/" in name for name in names)
    is_stripped = strips_folder and is_in_one_folder
    digest = hashlib.sha256(b"archive\0" + str(is_stripped).encode() + path.read_bytes())
    name = digest.hexdigest()[:32] + ("s" if is_stripped else "")
    _core.package_keep(name, 0o600, lambda beside: shutil.copyfile(path, beside))
    return name


def unpacked(session: Path, name: str) -> Path:
    """Where a package lies unpacked in a session."""
    return session / "packages" / name


def present(session: Path, name: str) -> Path:
    """Where a package lies unpacked, once it does: another node's daemon may have prepared it for this one."""
    place = unpacked(session, name)
    if not place.is_dir():
        unpack(zip_of(name), place, strips_folder=name.endswith("s"))
    return place


def unpack(zip_file: Path, into: Path, *, strips_folder: bool) -> None:
    """Unpacks a package; what is there already was unpacked by somebody else and is left alone."""
    if into.is_dir():
        touch(into)
        return
    beside = into.with_name(f"{into.name}.{os.getpid()}.new")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(mode=0o700, parents=True)
    try:
        with zipfile.ZipFile(zip_file) as archive:
            for entry in archive.infolist():
                _unpack_one(archive, entry, beside, zip_file, strips_folder)
        _flatten_wheel(beside)
        beside.rename(into)
    except OSError:
        shutil.rmtree(beside, ignore_errors=True)
        if not into.is_dir():
            raise
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _unpack_one(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, into: Path, zip_file: Path, strips_folder: bool
) -> None:
    _check_member(entry.filename, zip_file)
    parts = PurePosixPath(entry.filename).parts[1 if strips_folder else 0 :]
    if not parts:
        return
    target = into.joinpath(*parts)
    if entry.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(entry) as source, open(target, "wb") as copy:
        shutil.copyfileobj(source, copy, _COPY_BYTES)
    # Only whether it may be run: links and the like are never made.
    if entry.external_attr >> 16 & stat.S_IXUSR:
        target.chmod(0o755)


def _check_member(name: str, archive: Path) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise ValueError(f"{archive} holds {name!r}, which would be unpacked outside of its folder: it is refused whole")


def _flatten_wheel(folder: Path) -> None:
    """What a wheel keeps apart for `purelib` and `platlib` belongs beside the rest."""
    for data in folder.glob("*.data"):
        for library in (data / "purelib", data / "platlib"):
            for path in library.glob("*") if library.is_dir() else ():
                if not (folder / path.name).exists():
                    path.rename(folder / path.name)


def _files(folder: Path, excludes: list[str]) -> Iterator[tuple[str, Path, int]]:
    """Every file that is to travel: its name in the package, where it is, how large it is."""
    with_gitignore = os.environ.get(_GITIGNORE_VARIABLE) != "1"
    own = _ignore_rules.Rules(excludes)

    def walk(at: Path, rules: list[tuple[Path, _ignore_rules.Rules]], seen: tuple[Path, ...]) -> Iterator[Path]:
        found = _ignore_rules.of_folder(at, with_gitignore)
        rules = [*rules, (at, found)] if found is not None else rules
        for path in sorted(at.iterdir()):
            is_folder = path.is_dir()
            if _is_ignored(path, is_folder, rules) or not os.access(path, os.R_OK):
                continue
            if is_folder:
                # A link back up would never end.
                real = path.resolve()
                if real not in seen:
                    yield from walk(path, rules, (*seen, real))
            elif path.is_file():
                yield path

    for path in walk(folder, [(folder, own)], (folder,)):
        yield path.relative_to(folder).as_posix(), path, path.stat().st_size


def _is_ignored(path: Path, is_folder: bool, rules: list[tuple[Path, _ignore_rules.Rules]]) -> bool:
    # What the caller excludes cannot be taken back in by a file.
    base, own = rules[0]
    if own.verdict(path.relative_to(base).as_posix(), is_folder):
        return True
    for base, of_folder in reversed(rules[1:]):
        verdict = of_folder.verdict(path.relative_to(base).as_posix(), is_folder)
        if verdict is not None:
            return verdict
    return False


def _check_size(source: Path, sizes: list[tuple[int, str]]) -> None:
    total = sum(size for size, _ in sizes)
    if total > limit():
        largest = ", ".join(f"{name} ({size >> 10} KiB)" for size, name in sorted(sizes, reverse=True)[:_FILES_NAMED])
        raise ValueError(
            f"{source} holds {total} bytes, and a package may have {limit()}: leave files out with `excludes`, a "
            f".gitignore or a .rayignore, or raise {_LIMIT_VARIABLE}. The largest are {largest}"
        )


def _mode(path: Path) -> int:
    return 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644


def _store(name: str, members: list[tuple[str, Path]]) -> str:
    def write(beside: Path) -> None:
        with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False) as archive:
            for member, path in members:
                entry = zipfile.ZipInfo(member)
                entry.external_attr = (stat.S_IFREG | _mode(path)) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                with open(path, "rb") as source, archive.open(entry, "w", force_zip64=True) as copy:
                    shutil.copyfileobj(source, copy, _COPY_BYTES)

    _core.package_keep(name, 0o600, write)
    return name


def ship_program(path: Path) -> str:
    """Puts a program that is its own worker into the cache; returns its name there."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_COPY_BYTES):
            digest.update(block)
    name = f"{_PROGRAM}{digest.hexdigest()}"
    # Not a link: what is built anew may be written into the same file.
    _core.package_keep(name, 0o700, lambda beside: shutil.copyfile(path, beside))
    return name


def zip_of(name: str, where: Path | None = None) -> Path:
    """Where a package's file is: in this user's cache, or in the one in the folder `where`."""
    return _core.package_file(name, where)


def touch(path: Path) -> None:
    """Notes that something is used: what was used last is evicted last."""
    with contextlib.suppress(OSError):
        os.utime(path)
