"""Checkpoints put together from what ranks store."""

from __future__ import annotations

from pathlib import Path

import pytest
from oxiray.train._storage import Storage


def folder(path: Path, files: dict[str, str]) -> str:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(content)
    return str(path)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    made = Storage(str(tmp_path / "runs"), "run")
    made.prepare()
    return made


def files_in(storage: Storage, name: str) -> dict[str, str]:
    kept = Path(storage.join(name))
    return {str(path.relative_to(kept)): path.read_text() for path in kept.rglob("*") if path.is_file() and path.name[0] != "."}


def test_what_a_rank_had_stored_that_is_not_waited_for_is_not_kept(storage: Storage, tmp_path: Path) -> None:
    kept = {0: storage.store(folder(tmp_path / "0", {"model": "zero", "deep/own-0": "0"}), "c", 0)}
    storage.store(folder(tmp_path / "1", {"model": "of rank one", "own-1": "1"}), "c", 1)
    # A copy under way.
    Path(storage.staging("c"), "1", "own-2.77.new").write_text("ha")
    storage.commit("c", kept)
    assert files_in(storage, "c") == {"model": "zero", "deep/own-0": "0"}
    assert storage.what_is_wrong("c") is None
    assert not Path(storage.staging("c")).exists()


def test_of_files_of_one_name_the_last_ranks_is_kept(storage: Storage, tmp_path: Path) -> None:
    kept = {rank: storage.store(folder(tmp_path / str(rank), {"model": "x" * rank, f"own-{rank}": ""}), "c", rank) for rank in range(3)}
    storage.commit("c", kept)
    assert files_in(storage, "c") == {"model": "xx", "own-0": "", "own-1": "", "own-2": ""}
    assert storage.what_is_wrong("c") is None
