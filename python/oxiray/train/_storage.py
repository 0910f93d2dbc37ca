"""Where a run keeps what it reports: a folder, or what fsspec reaches by a URL.

Invariants:
1. Files of ours are replaced whole or not at all.
2. A checkpoint is there once the run's list of checkpoints names it; whatever else lies beside is not one.
"""

from __future__ import annotations

import json
import os
import posixpath
import shutil
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from oxiray.train._errors import CheckpointError

#: Lists each file of a checkpoint with its size and CRC-32, within the checkpoint's folder.
MANIFEST = ".manifest.json"
_CHUNK_BYTES = 4 << 20
#: How the names of folders end in which a checkpoint is put together.
_STAGED = ".partial"
#: Where in such a folder the files are that are committed; each rank's own lie beside it, in a folder of its number.
_WHOLE = "whole"
#: Files that are sent to a URL at the same time.
_UPLOADS_AT_ONCE = 4

#: What has no folders, only names; making one might make a bucket.
_OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci"})

#: What is in a checkpoint: path within it -> (bytes, CRC-32).
Manifest = dict[str, tuple[int, int]]


class Storage:
    """One run's folder. Travels to the workers."""

    def __init__(self, storage_path: str, name: str, filesystem: Any = None) -> None:
        self.filesystem = as_fsspec(filesystem)
        self.name = name
        if self.filesystem is None and "://" in storage_path:
            self.filesystem, storage_path = open_url(storage_path)
        self.is_local = self.filesystem is None
        if self.is_local:
            storage_path = os.path.abspath(os.path.expanduser(storage_path))
        self.storage_path = storage_path
        #: The run's own folder.
        self.path = posixpath.join(storage_path, name)

    def join(self, *parts: str) -> str:
        """A path within the run's folder."""
        return posixpath.join(self.path, *parts)

    def prepare(self) -> None:
        """Makes the folder and tries to write. Raises `CheckpointError` where that fails."""
        try:
            self._make_folder(self.path)
            self.write(".validate_storage_marker", b"")
        except Exception as error:
            raise CheckpointError(
                f"RunConfig(storage_path={self.storage_path!r}) cannot be written: {type(error).__name__}: {error}. Name a "
                "folder that this user may write to, shared by all machines, or a URL such as s3://bucket/folder"
            ) from error

    def is_seen_here(self) -> bool:
        """Whether this machine sees what `prepare` wrote."""
        marker = self.join(".validate_storage_marker")
        return os.path.exists(marker) if self.is_local else bool(self.filesystem.exists(marker))

    def write(self, name: str, content: bytes) -> None:
        """Replaces a file of the run's folder."""
        path = self.join(name)
        if not self.is_local:
            self.filesystem.pipe_file(path, content)
            return
        beside = f"{path}.{os.getpid()}.new"
        try:
            with open(beside, "wb") as file:
                file.write(content)
            os.replace(beside, path)
        except BaseException:
            _remove_file(beside)
            raise

    def read(self, name: str) -> bytes | None:
        """A file of the run's folder; None where there is none."""
        try:
            if not self.is_local:
                return bytes(self.filesystem.cat_file(self.join(name)))
            with open(self.join(name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def staging(self, checkpoint: str) -> str:
        """Where the ranks put a checkpoint's files until all are there."""
        # A URL has no renaming that is whole: there the list of checkpoints alone decides.
        return self.join(f".{checkpoint}{_STAGED}" if self.is_local else checkpoint)

    def store(self, source: str, checkpoint: str, rank: int) -> Manifest:
        """Copies a rank's folder to where the checkpoint is staged; returns what it copied."""
        target = self.staging(checkpoint)
        if self.is_local:
            # What a rank has half copied, for which the others do not wait, is not among theirs.
            target = os.path.join(target, str(rank))
        paths = list(files_of(source))
        for name in sorted({posixpath.dirname(name) for name in paths}):
            self._make_folder(posixpath.join(target, name))
        try:
            if self.is_local:
                return {name: _copy(os.path.join(source, name), os.path.join(target, name)) for name in paths}
            with ThreadPoolExecutor(_UPLOADS_AT_ONCE) as pool:
                sums = list(pool.map(lambda name: self._send(os.path.join(source, name), posixpath.join(target, name)), paths))
            return dict(zip(paths, sums, strict=True))
        except OSError as error:
            raise CheckpointError(
                f"checkpoint {checkpoint} could not be written to {target}: {error}. Those kept before are untouched; make "
                "room there, keep fewer with CheckpointConfig(num_to_keep), or choose another storage_path"
            ) from error

    def _make_folder(self, path: str) -> None:
        """Makes a folder, where files need one to lie in."""
        if self.is_local:
            os.makedirs(path, exist_ok=True)
        elif not _OBJECT_STORES.intersection(_protocols(self.filesystem)):
            self.filesystem.makedirs(path, exist_ok=True)

    def _send(self, source: str, target: str) -> tuple[int, int]:
        self.filesystem.put_file(source, target)
        return checksum(source)

    def commit(self, checkpoint: str, manifests: dict[int, Manifest]) -> None:
        """Puts what these ranks staged in its place. Raises `CheckpointError` where files are missing here."""
        staged = self.staging(checkpoint)
        if not self.is_local:
            manifest = self._merged(staged, list(manifests.values()))
            self._check(checkpoint, staged, manifest)
            self._make_folder(staged)
            self._remove_strangers(staged, manifest)
            self.filesystem.pipe_file(posixpath.join(staged, MANIFEST), json.dumps({"files": manifest}).encode())
            return
        for rank, own in manifests.items():
            self._check(checkpoint, os.path.join(staged, str(rank)), own)
        whole = self._gather(staged, manifests)
        final = self.join(checkpoint)
        if os.path.lexists(final):
            shutil.rmtree(final)
        os.rename(whole, final)
        shutil.rmtree(staged, ignore_errors=True)

    def _check(self, checkpoint: str, folder: str, manifest: Manifest) -> None:
        for name, (size, _) in manifest.items():
            found = self._size(posixpath.join(folder, name))
            if found != size:
                raise CheckpointError(
                    f"checkpoint {checkpoint} is not whole at {folder}: {name} has {size} bytes, and {found} are seen from "
                    "the machine that called fit(). Give RunConfig a storage_path that all machines share, or a URL"
                )

    def _gather(self, staged: str, manifests: dict[int, Manifest]) -> str:
        """Moves the files of ranks into one folder, with what they are; of files of one name, the last rank's stays."""
        whole = os.path.join(staged, _WHOLE)
        merged: Manifest = {}
        self._make_folder(whole)
        for rank, own in manifests.items():
            for folder in sorted({os.path.dirname(name) for name in own}):
                self._make_folder(os.path.join(whole, folder))
            for name in own:
                os.replace(os.path.join(staged, str(rank), name), os.path.join(whole, name))
            merged.update(own)
        with open(os.path.join(whole, MANIFEST), "wb") as file:
            file.write(json.dumps({"files": merged}).encode())
        return whole

    def _remove_strangers(self, folder: str, manifest: Manifest) -> None:
        """Removes what an attempt left there that ended before its checkpoint was whole."""
        self.filesystem.invalidate_cache()
        for path in self.filesystem.find(folder):
            if posixpath.relpath(path, folder) not in manifest:
                self.filesystem.rm(path)

    def sweep(self) -> None:
        """Removes what was staged by a group that has ended; on a URL nothing says what that is."""
        if self.is_local:
            for name in os.listdir(self.path):
                if name.startswith(".") and name.endswith(_STAGED):
                    shutil.rmtree(self.join(name), ignore_errors=True)

    def _merged(self, staged: str, manifests: list[Manifest]) -> Manifest:
        merged: Manifest = {}
        for manifest in manifests:
            for name, sums in manifest.items():
                if merged.setdefault(name, sums) != sums:
                    # Ranks reported different files of one name, and it is not known whose came last.
                    merged[name] = (self._size(posixpath.join(staged, name)) or 0, sums[1])
        return merged

    def _size(self, path: str) -> int | None:
        try:
            return os.path.getsize(path) if self.is_local else int(self.filesystem.size(path))
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        """Removes a folder of the run, if it is there."""
        if self.is_local:
            shutil.rmtree(self.join(name), ignore_errors=True)
        elif self.filesystem.exists(self.join(name)):
            self.filesystem.rm(self.join(name), recursive=True)

    def what_is_wrong(self, checkpoint: str) -> str | None:
        """Why a checkpoint of the list cannot be used: files are gone or not what was reported. None where it can."""
        content = self.read(posixpath.join(checkpoint, MANIFEST))
        if content is None:
            there = os.path.isdir(self.join(checkpoint)) if self.is_local else self.filesystem.exists(self.join(checkpoint))
            # Ray writes no manifest: its checkpoints are taken as they are.
            return None if there else f"its folder {self.join(checkpoint)} is gone"
        return difference(self, self.join(checkpoint), json.loads(content)["files"])


def difference(storage: Storage, folder: str, files: dict[str, Any]) -> str | None:
    """The first file that is not as it was reported, in words; contents are compared where they are files here."""
    for name, (size, crc) in files.items():
        path = posixpath.join(folder, name)
        found = storage._size(path)
        if found is None:
            return f"{path} is gone"
        if found != size:
            return f"{path} has {found} bytes and was reported with {size}"
        if storage.is_local and checksum(path) != (size, crc):
            return f"{path} is not what was reported: its checksum differs"
    return None


def files_of(folder: str) -> Iterator[str]:
    """The files below a folder, by their path within it. Raises `CheckpointError` where there is no such folder."""
    if not os.path.isdir(folder):
        raise CheckpointError(f"the checkpoint's folder {folder} is not there: report it before it is removed")
    for base, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.relpath(os.path.join(base, name), folder)
            if path != MANIFEST:
                yield path


def _remove_file(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # it was never made, or nothing can be removed there


def _copy(source: str, target: str) -> tuple[int, int]:
    size = crc = 0
    # A file has its name once it is whole.
    beside = f"{target}.{os.getpid()}.new"
    try:
        with open(source, "rb") as reader, open(beside, "wb") as writer:
            while chunk := reader.read(_CHUNK_BYTES):
                crc = zlib.crc32(chunk, crc)
                size += len(chunk)
                writer.write(chunk)
        os.replace(beside, target)
    except BaseException:
        _remove_file(beside)
        raise
    return size, crc


def checksum(path: str) -> tuple[int, int]:
    """Bytes and CRC-32 of a file."""
    size = crc = 0
    with open(path, "rb") as reader:
        while chunk := reader.read(_CHUNK_BYTES):
            crc = zlib.crc32(chunk, crc)
            size += len(chunk)
    return size, crc


def _protocols(filesystem: Any) -> tuple[str, ...]:
    named = filesystem.protocol
    return (named,) if isinstance(named, str) else tuple(named)


def open_url(url: str) -> tuple[Any, str]:
    """The filesystem of a URL, and the path there; None and the path for a file's."""
    if url.startswith("file://"):
        return None, url.removeprefix("file://")
    fsspec = _fsspec(f"storage_path {url!r} is a URL")
    try:
        filesystem, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise CheckpointError(f"storage_path {url!r} cannot be opened: {error}. Install what fsspec needs for it") from error
    return filesystem, path


def as_fsspec(filesystem: Any) -> Any:
    """A filesystem as fsspec's, given fsspec's or pyarrow's; None for none."""
    if filesystem is None or hasattr(filesystem, "pipe_file"):
        return filesystem
    if hasattr(filesystem, "open_input_stream"):
        _fsspec("a filesystem of pyarrow was given")
        from fsspec.implementations.arrow import ArrowFSWrapper

        return ArrowFSWrapper(filesystem)
    raise ValueError(f"storage_filesystem takes a filesystem of fsspec or of pyarrow, and was given {filesystem!r}")


def as_pyarrow(filesystem: Any) -> Any:
    """A filesystem of fsspec, or None for the local one, as pyarrow's; as fsspec's where there is no pyarrow."""
    try:
        from pyarrow import fs
    except ImportError:
        return filesystem if filesystem is not None else _fsspec("a filesystem was asked for").filesystem("file")
    if filesystem is None:
        return fs.LocalFileSystem()
    own = getattr(filesystem, "fs", None)
    return own if isinstance(own, fs.FileSystem) else fs.PyFileSystem(fs.FSSpecHandler(filesystem))


def _fsspec(why: str) -> Any:
    try:
        import fsspec
    except ImportError as error:
        raise CheckpointError(f"{why}, which needs fsspec: `pip install fsspec`, and for S3 `pip install s3fs`") from error
    return fsspec
