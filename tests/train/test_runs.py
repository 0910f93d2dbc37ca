"""What a training function sees and says: its place, reports as barriers, checkpoints, data, and what `fit` returns."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import train
from ray.train import Checkpoint, CheckpointConfig, CheckpointUploadMode, DataConfig, Result
from ray.train.collective import barrier, broadcast_from_rank_zero
from watching import alive, wait_until


def checkpoint(folder: Path, **files: str) -> Checkpoint:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content)
    return Checkpoint.from_directory(folder)


def test_places_and_the_last_report(fit) -> None:
    def function(config: dict[str, Any]) -> list[Any]:
        context = train.get_context()
        place = [context.get_world_rank(), context.get_local_rank(), context.get_node_rank()]
        sizes = [context.get_world_size(), context.get_local_world_size()]
        for step in range(3):
            train.report({"step": step, "rank": context.get_world_rank(), "x": config["x"]})
        return [place, sizes, context.get_experiment_name(), os.getcwd()]

    result = fit(function, 3, config={"x": 7})
    assert result.return_value == [[0, 0, 0], [3, 3], "run", os.getcwd()]
    assert result.metrics == {"step": 2, "rank": 0, "x": 7}
    assert result.checkpoint is None
    assert [row["step"] for row in result.history] == [0, 1, 2]
    assert Result.from_path(result.path).history == result.history


def test_a_report_is_a_barrier_and_quick(fit, tmp_path: Path) -> None:
    def function(config: dict[str, Any]) -> float:
        rank = train.get_context().get_world_rank()
        if rank == 1:
            time.sleep(0.3)
            Path(config["late"]).touch()
        train.report({})
        assert Path(config["late"]).exists(), "rank 0 went on before rank 1 had come"
        took = []
        for step in range(300):
            begun = time.perf_counter()
            train.report({"step": step})
            took.append(time.perf_counter() - begun)
        # The median: a machine with much else to do stalls some of them.
        return sorted(took)[150]

    result = fit(function, config={"late": str(tmp_path / "late")})
    assert len(result.history) == 301
    # Ray takes 2 s; an idle machine takes half a millisecond, and one with much to do many times as much.
    assert result.return_value < 0.5


def test_metrics_may_have_any_name(fit) -> None:
    result = fit(lambda: train.report({"report": "mine", "seconds": -1, "loss": 2.0}), 1)
    assert result.metrics == {"report": "mine", "seconds": -1, "loss": 2.0}
    assert result.history == [result.metrics]
    assert "1 points" in repr(result.plot("loss"))
    assert len({train.RunConfig().name for _ in range(5)}) == 5


def test_callbacks_see_every_rank(fit) -> None:
    seen = []

    class Noting(train.UserCallback):
        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            seen.append((run_context.run_config.name, [one["rank"] for one in metrics], checkpoint))

    fit(lambda: train.report({"rank": train.get_context().get_world_rank()}), 3, callbacks=[Noting()])
    assert seen == [("run", [0, 1, 2], None)]


def test_the_environment_names_callbacks(fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_of_all_runs.py").write_text(
        "from ray import train\n"
        "class Noting(train.UserCallback):\n"
        "    seen = []\n"
        "    def after_report(self, run_context, metrics, checkpoint):\n"
        "        self.seen.append(metrics)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RAY_TRAIN_CALLBACKS", "mine_of_all_runs.Noting")
    fit(lambda: train.report({"step": 1}), 1)
    assert __import__("mine_of_all_runs").Noting.seen == [[{"step": 1}]]
    for named, says in (("mine_of_all_runs.Other", "cannot be imported"), ("Noting", "cannot be imported"), ("os.path.join", "no class derived")):
        monkeypatch.setenv("RAY_TRAIN_CALLBACKS", named)
        with pytest.raises(ValueError, match=says):
            fit(lambda: None, 1)


def test_checkpoints_of_all_ranks_are_one_folder(fit, tmp_path: Path) -> None:
    def function() -> None:
        rank = train.get_context().get_world_rank()
        assert train.get_checkpoint() is None
        train.report({"loss": 1.0}, checkpoint=checkpoint(tmp_path / f"own-{rank}", **{f"rank-{rank}": str(rank), "both": "same"}))
        with train.get_checkpoint().as_directory() as folder:
            assert sorted(os.listdir(folder)) == [".manifest.json", "both", "rank-0", "rank-1"]
        train.report({"loss": 0.5})
        assert [one.metrics for one in train.get_all_reported_checkpoints()] == [{"loss": 1.0}]

    result = fit(function)
    assert result.metrics == {"loss": 0.5}, "the last report, checkpoint or not"
    assert [metrics for _, metrics in result.best_checkpoints] == [{"loss": 1.0}]
    listed = sorted(name for name in os.listdir(result.path) if not name.startswith("checkpoint_2"))
    assert listed == [".validate_storage_marker", "checkpoint_manager_snapshot.json", "reports.jsonl"]
    copied = result.checkpoint.to_directory(tmp_path / "copied")
    assert sorted(os.listdir(copied)) == ["both", "rank-0", "rank-1"]
    assert Result.from_path(result.path).checkpoint == result.checkpoint


@pytest.mark.parametrize(
    ("order", "kept"), [(None, [4, 5]), ("max", [3, 5]), ("min", [2, 4, 5])], ids=["last", "greatest", "least"]
)
def test_checkpoints_are_kept_by_score(fit, tmp_path: Path, order: str | None, kept: list[int]) -> None:
    def function() -> None:
        for step, score in enumerate([5, 1, 9, 2, 7], 1):
            own = checkpoint(tmp_path / "own", step=str(step))
            train.report({"score": score}, checkpoint=own, checkpoint_dir_name=f"checkpoint_{step}")

    scored = {"checkpoint_score_attribute": "score", "checkpoint_score_order": order} if order else {}
    result = fit(function, 1, checkpoint_config=CheckpointConfig(num_to_keep=2, **scored))
    assert sorted(int(Path(one.path).name[-1]) for one, _ in result.best_checkpoints) == kept, "the last one always stays"
    assert sorted(name for name in os.listdir(result.path) if name.startswith("checkpoint_") and name[-1].isdigit()) == [
        f"checkpoint_{step}" for step in kept
    ]
    assert result.get_best_checkpoint("score", "max") == max(result.best_checkpoints, key=lambda pair: pair[1]["score"])[0]
    with pytest.raises(RuntimeError, match="reported with a checkpoint were score"):
        result.get_best_checkpoint("loss", "max")


def test_training_goes_on_while_one_checkpoint_is_stored(fit, tmp_path: Path) -> None:
    def store(own: Checkpoint, name: str) -> Checkpoint:
        while not (tmp_path / f"gate-{name}").exists():
            time.sleep(0.01)
        return Checkpoint(shutil.copytree(own.path, Path(train.get_context().get_storage().path) / name))

    def function() -> None:
        run = Path(train.get_context().get_storage().path)

        def report(step: int) -> None:
            train.report(
                {"step": step}, checkpoint(tmp_path / f"own-{step}", data="x"), f"checkpoint_{step}", CheckpointUploadMode.ASYNC,
                checkpoint_upload_fn=store,
            )  # fmt: skip

        report(0)
        train.report({"between": 0})
        assert not (run / "checkpoint_0").exists(), "training goes on while it is stored"
        opening = threading.Timer(0.3, (tmp_path / "gate-checkpoint_0").touch)
        opening.start()
        report(1)
        assert (run / "checkpoint_0").exists(), "one at a time: the next waited for it"
        assert train.get_checkpoint() is not None and Path(train.get_checkpoint().path).name == "checkpoint_0"
        (tmp_path / "gate-checkpoint_1").touch()
        assert [Path(one.checkpoint.path).name for one in train.get_all_reported_checkpoints()] == ["checkpoint_0", "checkpoint_1"]

    result = fit(function, 1)
    assert [Path(one.path).name for one, _ in result.best_checkpoints] == ["checkpoint_0", "checkpoint_1"]
    assert [row["report"] for row in result.history] == [1, 2, 3]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("own")] == [], "removed once they were stored"


def test_a_checkpoint_that_is_in_its_place_is_not_copied(fit) -> None:
    def function() -> None:
        own = checkpoint(Path(train.get_context().get_storage().path) / "mine", data="x")
        train.report({}, checkpoint=own, checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)

    result = fit(function, 1)
    assert Path(result.checkpoint.path) == Path(result.path) / "mine"


def test_a_run_of_the_same_name_goes_on(fit, tmp_path: Path) -> None:
    def function() -> int:
        begun = train.get_checkpoint()
        step = int(json.loads((Path(begun.path) / "step").read_text())) if begun else 0
        train.report({"step": step}, checkpoint=checkpoint(tmp_path / "own", step=str(step + 1)))
        train.report({"after": step})
        return step

    assert [fit(function, 1).return_value for _ in range(3)] == [0, 1, 2]
    result = fit(function, 1, name="other")
    assert result.return_value == 0
    last = fit(function, 1)
    assert [row.get("step") for row in last.history] == [0, 1, 2, 3, None], "rows after the checkpoint happen again"


def test_data_is_divided(fit) -> None:
    def function() -> tuple[Any, ...]:
        rows = list(train.get_dataset_shard("train"))
        every = {rank: rows for rank, rows in enumerate([rows])}
        batches = list(train.get_dataset_shard("train").iter_batches(batch_size=2))
        with pytest.raises(KeyError, match="no dataset 'test' was given"):
            train.get_dataset_shard("test")
        return every[0], batches, list(train.get_dataset_shard("whole")), broadcast_from_rank_zero(len(rows))

    result = fit(
        function, 3, datasets={"train": list(range(10)), "whole": range(3)}, dataset_config=DataConfig(["train"])
    )
    assert result.return_value == ([0, 3, 6, 9], [[0, 3], [6, 9]], [0, 1, 2], 4)


def test_collective_calls(fit, tmp_path: Path) -> None:
    def function() -> Any:
        rank = train.get_context().get_world_rank()
        if rank == 1:
            time.sleep(0.2)
            (tmp_path / "came").touch()
        barrier()
        assert (tmp_path / "came").exists()
        train.report({"sent": broadcast_from_rank_zero({"rank": rank})["rank"]})

    assert fit(function, 3).metrics == {"sent": 0}


def test_no_workers_is_this_process(fit) -> None:
    def function() -> int:
        train.report({"pid": os.getpid()})
        assert train.get_context().get_world_size() == 1
        return os.getpid()

    result = fit(function, 0)
    assert (result.return_value, result.metrics) == (os.getpid(), {"pid": os.getpid()})
    with pytest.raises(RuntimeError, match="outside"):
        train.get_context()


def test_the_history_is_drawn(fit, tmp_path: Path) -> None:
    def function() -> None:
        for step in range(50):
            train.report({"loss": 1 / (step + 1), "name": "x"})

    result = fit(function, 1)
    drawing = result.plot("loss", path=tmp_path / "loss.svg")
    svg = (tmp_path / "loss.svg").read_text()
    assert svg.startswith("<svg") and svg.count(",") >= 50 and drawing.svg == svg
    with pytest.raises(ValueError, match="numbers reported as loss"):
        result.plot("name")


def test_what_a_machine_is_given_back(fit) -> None:
    class Noting(train.UserCallback):
        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            pids.extend(one["pid"] for one in metrics)

    pids: list[int] = []
    fit(lambda: train.report({"pid": os.getpid()}), 4, callbacks=[Noting()])
    assert len(pids) == 4
    wait_until(lambda: not any(alive(pid) for pid in pids))
    wait_until(lambda: ray.available_resources().get("CPU") == ray.cluster_resources()["CPU"])
