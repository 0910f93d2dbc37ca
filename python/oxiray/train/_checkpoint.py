"""Folders that a training function reported."""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from oxiray.train import _storage
from oxiray.train._errors import CheckpointError

_METADATA = ".metadata.json"


class Checkpoint:
    """A folder of files, here or behind a URL. Only its place travels between processes."""

    __module__ = "oxiray.train"

    def __init__(self, path: str | os.PathLike[str], filesystem: Any = None) -> None:
        self.path = os.fspath(path)
        self._filesystem = _storage.as_fsspec(filesystem)
        if self._filesystem is None and "://" in self.path:
            self._filesystem, self.path = _storage.open_url(self.path)

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """The folder at `path`, as a checkpoint; nothing is copied."""
        return cls(os.path.abspath(os.path.expanduser(os.fspath(path))))

    @property
    def filesystem(self) -> Any:
        """What reaches it, as Ray has it: pyarrow's filesystem where pyarrow is installed, else fsspec's."""
        return _storage.as_pyarrow(self._filesystem)

    def is_there(self) -> bool:
        """Whether its folder exists."""
        return os.path.isdir(self.path) if self._filesystem is None else bool(self._filesystem.exists(self.path))

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copies the files to `path`, or to a new temporary folder; returns which. What was damaged raises `CheckpointError`."""
        target = os.fspath(path) if path is not None else tempfile.mkdtemp(prefix="checkpoint-")
        os.makedirs(target, exist_ok=True)
        if self._filesystem is None:
            if not os.path.isdir(self.path):
                raise CheckpointError(f"the checkpoint {self.path} is gone: it was removed or its disk is not mounted here")
            shutil.copytree(self.path, target, dirs_exist_ok=True)
        else:
            self._filesystem.get(self.path.rstrip("/") + "/", target, recursive=True)
        manifest = os.path.join(target, _storage.MANIFEST)
        if os.path.exists(manifest):
            with open(manifest) as file:
                files = json.load(file)["files"]
            for name, (size, crc) in files.items():
                copied = os.path.join(target, name)
                if not os.path.exists(copied) or _storage.checksum(copied) != (size, crc):
                    raise CheckpointError(f"{posixpath.join(self.path, name)} is not what was reported: its checksum differs")
            os.unlink(manifest)
        return target

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """The files as a folder of this machine: in place where they are here, else a copy that is removed afterwards."""
        if self._filesystem is None:
            if not os.path.isdir(self.path):
                raise CheckpointError(f"the checkpoint {self.path} is gone: it was removed or its disk is not mounted here")
            yield self.path
            return
        folder = self.to_directory()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def get_metadata(self) -> dict[str, Any]:
        """What `set_metadata` left."""
        try:
            if self._filesystem is not None:
                return dict(json.loads(self._filesystem.cat_file(posixpath.join(self.path, _METADATA))))
            with open(os.path.join(self.path, _METADATA)) as file:
                return dict(json.load(file))
        except FileNotFoundError:
            return {}

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Keeps what JSON can hold beside the files."""
        content = json.dumps(metadata).encode()
        if self._filesystem is not None:
            self._filesystem.pipe_file(posixpath.join(self.path, _METADATA), content)
            return
        with open(os.path.join(self.path, _METADATA), "wb") as file:
            file.write(content)

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """Adds to what `set_metadata` left."""
        self.set_metadata({**self.get_metadata(), **metadata})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and other.path == self.path and other._filesystem == self._filesystem

    def __hash__(self) -> int:
        return hash(self.path)

    def __fspath__(self) -> str:
        raise TypeError("a Checkpoint may lie behind a URL: use `with checkpoint.as_directory() as folder`")

    def __repr__(self) -> str:
        if self._filesystem is None:
            return f"Checkpoint(path={self.path})"
        return f"Checkpoint(filesystem={type(self._filesystem).__name__}, path={self.path})"
