"""Runs that are kept behind a URL: on a server that speaks S3, and on filesystems that are handed over."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from ray import train
from ray.train import Checkpoint, CheckpointConfig, CheckpointUploadMode, Result
from watching import wait_until

_SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """A server that speaks S3, with one empty bucket; what every process of this test needs to reach it is set."""
    server = subprocess.Popen([sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None and server.stdin is not None
    port = int(server.stdout.readline())
    variables = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        filesystem = fsspec.filesystem("s3", skip_instance_cache=True)
        filesystem.mkdir("bucket")
        yield variables, filesystem
    server.stdin.close()
    server.wait(20)


def steps(config: dict[str, Any]) -> list[int]:
    """Reports three checkpoints after the last that is there; returns what it began with."""
    begun = train.get_checkpoint()
    first = 0
    if begun is not None:
        with begun.as_directory() as folder:
            first = int((pathlib.Path(folder) / "step").read_text())
            assert sorted(os.listdir(folder)) == ["rank-0", "rank-1", "step"], "whole, and nothing of ours"
    rank = train.get_context().get_world_rank()
    for step in range(first + 1, first + 4):
        own = pathlib.Path(config["folder"]) / f"own-{rank}-{step}"
        own.mkdir()
        (own / f"rank-{rank}").write_bytes(bytes(100_000))
        if rank == 0:
            (own / "step").write_text(str(step))
        kept = Checkpoint.from_directory(own)
        train.report({"step": step}, checkpoint=kept, checkpoint_upload_mode=config["mode"], checkpoint_dir_name=f"checkpoint_{step}")
    assert [one.metrics["step"] for one in train.get_all_reported_checkpoints()][-1] == first + 3
    return [first, first + 3]


@pytest.mark.parametrize("mode", [CheckpointUploadMode.SYNC, CheckpointUploadMode.ASYNC])
def test_a_run_on_s3_goes_on_where_it_ended(fit, s3: Any, tmp_path: Path, mode: CheckpointUploadMode) -> None:
    variables, filesystem = s3
    url = f"s3://bucket/{mode.value}"
    config = {"folder": str(tmp_path), "mode": mode}
    options = {"storage_path": url, "checkpoint_config": CheckpointConfig(num_to_keep=2), "environment": {"env_vars": variables}}
    first = fit(steps, config=config, **options)
    assert first.return_value == [0, 3]
    second = fit(steps, config=config, **options)
    assert second.return_value == [3, 6]
    filesystem.invalidate_cache()
    folders = {Path(path).name for path in filesystem.ls(f"bucket/{mode.value}/run")}
    assert folders == {
        ".validate_storage_marker", "checkpoint_5", "checkpoint_6", "checkpoint_manager_snapshot.json", "reports.jsonl",
    }  # fmt: skip
    assert [row["step"] for row in second.history] == list(range(1, 7))
    found = Result.from_path(f"{url}/run")
    assert [row["step"] for row in found.history] == list(range(1, 7))
    assert (Path(found.checkpoint.to_directory(tmp_path / "copied")) / "step").read_text() == "6"


def test_a_checkpoint_that_lost_a_file_on_s3_is_left_out(fit, s3: Any, tmp_path: Path) -> None:
    variables, filesystem = s3
    options = {"storage_path": "s3://bucket/damaged", "environment": {"env_vars": variables}}
    config = {"folder": str(tmp_path), "mode": CheckpointUploadMode.SYNC}
    fit(steps, config=config, **options)
    filesystem.rm("bucket/damaged/run/checkpoint_3/rank-1")
    for own in tmp_path.glob("own-*-3"):
        own.rename(own.with_name(f"old-{own.name}"))
    assert fit(steps, config=config, **options).return_value == [2, 5]


def test_a_bucket_that_is_not_there(fit, s3: Any) -> None:
    with pytest.raises(train.ControllerError, match="cannot be written"):
        fit(lambda: None, storage_path="s3://no-such-bucket-anywhere/runs")


@pytest.mark.parametrize("makes_folders", [True, False])
def test_a_filesystem_that_is_handed_over(fit, tmp_path: Path, makes_folders: bool) -> None:
    local = fsspec.filesystem("file", auto_mkdir=makes_folders, skip_instance_cache=True)
    config = {"folder": str(tmp_path), "mode": CheckpointUploadMode.SYNC}
    result = fit(steps, config=config, storage_path=str(tmp_path / "handed"), storage_filesystem=local)
    assert result.filesystem is local or result.filesystem == local
    wait_until(lambda: (tmp_path / "handed" / "run" / "checkpoint_3" / "rank-1").exists())
    with pytest.raises(train.ControllerError, match="storage_filesystem takes"):
        fit(lambda: None, storage_filesystem=object())
