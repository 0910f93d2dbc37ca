"""What cannot work is an error that says so, and the last good checkpoint stays."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import train
from ray.train import Checkpoint, CheckpointUploadMode, ControllerError, ScalingConfig, TrainingFailedError


def own_files(folder: Path, size: int = 10) -> Checkpoint:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data").write_bytes(b"x" * size)
    return Checkpoint.from_directory(folder)


def test_a_function_that_cannot_travel(fit) -> None:
    lock = threading.Lock()

    def function() -> None:
        lock.acquire()

    with pytest.raises(TypeError, match=r"train_loop_per_worker cannot be sent to the workers: .*lock"):
        fit(function)
    with pytest.raises(TypeError, match=r"train_loop_config cannot be sent"):
        fit(lambda config: None, config={"lock": lock})


def test_a_path_that_cannot_be_written(fit, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    began = tmp_path / "began"
    for path in (tmp_path / "file" / "runs", Path("/proc/runs")):
        with pytest.raises(ControllerError, match=f"storage_path='{path}'.*cannot be written"):
            fit(lambda: began.touch(), storage_path=str(path))
    with pytest.raises(TrainingFailedError, match="Install what fsspec needs|Protocol not known"):
        fit(lambda: began.touch(), storage_path="nosuch://bucket/runs")
    assert not began.exists(), "no worker was started for it"


def test_a_checkpoint_that_is_not_there(fit, tmp_path: Path) -> None:
    def function() -> None:
        train.report({"good": 1}, checkpoint=own_files(tmp_path / "own"))
        train.report({}, checkpoint=Checkpoint.from_directory(tmp_path / "nowhere"))

    with pytest.raises(TrainingFailedError, match="nowhere is gone"):
        fit(function, 1)
    assert fit(lambda: train.get_checkpoint() is not None, 1).return_value


@pytest.mark.parametrize("damage", ["gone", "shorter", "changed"])
def test_a_kept_checkpoint_that_is_damaged_is_left_out(fit, tmp_path: Path, damage: str, capfd) -> None:
    def function() -> str | None:
        begun = train.get_checkpoint()
        if begun is None:
            for number in (1, 2):
                kept = own_files(tmp_path / f"own-{number}")
                train.report({"number": number}, checkpoint=kept, checkpoint_dir_name=f"checkpoint_{number}")
        return Path(begun.path).name if begun else None

    folder = Path(fit(function, 1).path) / "checkpoint_2"
    if damage == "gone":
        shutil.rmtree(folder)
    else:
        (folder / "data").write_bytes(b"x" * 9 if damage == "shorter" else b"y" * 10)
    result = fit(function, 1)
    assert result.return_value == "checkpoint_1"
    said = capfd.readouterr().err
    assert "checkpoint_2 cannot be used" in said
    assert {"gone": "is gone", "shorter": "has 9 bytes", "changed": "checksum differs"}[damage] in said
    assert [row["number"] for row in result.history] == [1]


def test_a_list_of_checkpoints_that_cannot_be_read(fit) -> None:
    result = fit(lambda: train.report({}), 1)
    (Path(result.path) / "checkpoint_manager_snapshot.json").write_text("{")
    with pytest.raises(ControllerError, match="another name, or remove the file"):
        fit(lambda: None, 1)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte; tests run as root, as those of network namespaces do."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("mode", [CheckpointUploadMode.SYNC, CheckpointUploadMode.ASYNC])
def test_a_full_disk(fit, tmp_path: Path, small_disk: Path, mode: CheckpointUploadMode) -> None:
    def function() -> None:
        for number in range(1, 10):
            rank = train.get_context().get_world_rank()
            # Both ranks meet the full disk, or one of them: all hear of it.
            kept = own_files(tmp_path / f"own-{rank}-{number}", size=100_000 if rank else 200_000)
            (Path(kept.path) / "data").rename(Path(kept.path) / f"data-{rank}")
            train.report({"number": number}, checkpoint=kept, checkpoint_upload_mode=mode)

    with pytest.raises(TrainingFailedError, match="No space left on device.*Those kept before are untouched") as caught:
        fit(function, storage_path=str(small_disk))
    assert "make room there" in str(caught.value)

    def look() -> list[int]:
        with train.get_checkpoint().as_directory() as folder:
            return [os.path.getsize(Path(folder) / f"data-{rank}") for rank in range(2)]

    result = fit(look, 1, storage_path=str(small_disk))
    assert result.return_value == [200_000, 100_000]
    assert result.history[-1]["number"] == 3


def test_a_group_that_no_machine_could_hold(fit, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = time.monotonic()
    with pytest.raises(ControllerError, match=r"(?s)CPU.*ask for less in ScalingConfig, or add machines"):
        fit(lambda: None, scaling=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1000}))
    # How long a machine that could may take to join.
    monkeypatch.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "0.2")
    with pytest.raises(ControllerError, match="warp drive"):
        fit(lambda: None, scaling=ScalingConfig(num_workers=2, resources_per_worker={"warp drive": 1}))
    assert time.monotonic() - begun < 60


def test_a_group_that_waits_says_for_what(fit, capfd) -> None:
    class Holder:
        def ready(self) -> None:
            pass

    holders = [ray.remote(Holder).options(num_cpus=2).remote() for _ in range(4)]
    ray.get([holder.ready.remote() for holder in holders])
    said: list[str] = []
    heard_after: list[float] = []
    begun = time.monotonic()

    def listen() -> None:
        while not heard_after and time.monotonic() - begun < 60:
            said.append(capfd.readouterr().err)
            if "not placed" in "".join(said):
                heard_after.append(time.monotonic() - begun)
            time.sleep(0.05)
        for holder in holders:
            ray.kill(holder)

    listener = threading.Thread(target=listen)
    listener.start()
    result = fit(lambda: train.report({"trained": True}), 2)
    listener.join()
    assert heard_after, said
    assert "2 workers of {'CPU': 1} are not placed" in "".join(said)
    assert "1 CPU asked for, 0 of 8 free" in "".join(said)
    assert result.metrics == {"trained": True}


def test_a_result_that_is_nowhere(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no run lies at"):
        train.Result.from_path(tmp_path / "nothing")


def test_rows_that_were_cut_off_are_left_out(fit) -> None:
    result = fit(lambda: [train.report({"n": n}) for n in range(3)][:0], 1)
    with open(Path(result.path) / "reports.jsonl", "a") as file:
        file.write('{"n": 4, "rep')
    assert [row["n"] for row in train.Result.from_path(result.path).history] == [0, 1, 2]
    assert json.loads((Path(result.path) / "reports.jsonl").read_text().splitlines()[0])["report"] == 1


def test_what_report_refuses(fit, tmp_path: Path) -> None:
    def function() -> list[str]:
        texts = []
        own = own_files(tmp_path / "own")
        for act in (
            lambda: train.report(3),
            lambda: train.report({}, checkpoint="/tmp"),
            lambda: train.report({}, checkpoint=own, checkpoint_dir_name="a/b"),
            lambda: train.report({}, checkpoint=own, checkpoint_upload_mode="later"),
            lambda: train.report({}, checkpoint=own, checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD),
            lambda: train.report({}, validation=True),
        ):
            try:
                act()
            except Exception as error:
                texts.append(f"{type(error).__name__}: {error}")
        return texts

    texts: Any = fit(function, 1).return_value
    for text, words in zip(
        texts, ["dictionary", "from_directory", "without `/`", "CheckpointUploadMode", "run's folder", "needs a checkpoint"],
        strict=True,
    ):  # fmt: skip
        assert words in text


def test_an_environment_that_cannot_be_made(fit) -> None:
    begun = time.monotonic()
    with pytest.raises(ControllerError, match="no_such_module_anywhere"):
        fit(lambda: None, environment={"preload": ["no_such_module_anywhere"]})
    with pytest.raises(ValueError, match="Invalid placement group strategy NEAR"):
        fit(lambda: None, scaling=ScalingConfig(placement_strategy="NEAR"))
    assert time.monotonic() - begun < 60
