"""A checkpoint's filesystem is pyarrow's, where pyarrow is installed: what Ray's programs expect."""

from __future__ import annotations

from pathlib import Path

import fsspec
from pyarrow import fs
from ray.train import Checkpoint


def test_a_checkpoint_shows_a_filesystem_of_pyarrow(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("17")
    here = Checkpoint.from_directory(tmp_path)
    assert isinstance(here.filesystem, fs.LocalFileSystem)
    with here.filesystem.open_input_stream(f"{here.path}/state") as file:
        assert file.read() == b"17"

    memory = fsspec.filesystem("memory")
    memory.pipe_file("/runs/one/state", b"18")
    behind_a_url = Checkpoint("memory://runs/one")
    assert isinstance(behind_a_url.filesystem, fs.PyFileSystem)
    with behind_a_url.filesystem.open_input_stream(f"{behind_a_url.path}/state") as file:
        assert file.read() == b"18"
    with behind_a_url.as_directory() as folder:
        assert (Path(folder) / "state").read_text() == "18"

    own = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    assert Checkpoint("/", own).filesystem is own, "the one that was handed over"
