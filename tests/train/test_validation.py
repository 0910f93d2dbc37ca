"""Checkpoints are validated beside the training, and what that finds is theirs."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import train
from ray.train import Checkpoint, CheckpointConfig, CheckpointConsistencyMode, ReportedCheckpointStatus, ValidationConfig, ValidationTaskConfig
from watching import wait_until


def numbered(folder: Path, number: int) -> Checkpoint:
    own = folder / f"own-{number}"
    own.mkdir(exist_ok=True)
    (own / "number").write_text(str(number))
    return Checkpoint.from_directory(own)


def measure(checkpoint: Checkpoint, times: int = 1, **_: Any) -> dict[str, Any]:
    """What a checkpoint is worth: its number, and which process says so."""
    with checkpoint.as_directory() as folder:
        return {"worth": times * int((Path(folder) / "number").read_text()), "validator": os.getpid()}


def test_validations_join_the_metrics_and_decide_what_is_kept(fit, tmp_path: Path) -> None:
    def function() -> list[Any]:
        for number, validation in enumerate([True, ValidationTaskConfig({"times": 10}), False, True]):
            rank = train.get_context().get_world_rank()
            own = numbered(tmp_path, number) if rank == 0 else None
            # Whichever rank reports the checkpoint asks for its validation.
            train.report({"loss": number}, own, f"checkpoint_{number}", validation=validation if own else False)
        told = train.get_all_reported_checkpoints()
        return [(Path(one.checkpoint.path).name, one.status.value, one.metrics.get("worth")) for one in told]

    validation = ValidationConfig(measure, ValidationTaskConfig({"times": -1}), {"num_cpus": 1})
    kept = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="worth")
    result = fit(function, validation_config=validation, checkpoint_config=kept)
    # Of 0, 10, nothing and -3 the best two are kept, and the last. None was let go of before it was validated.
    assert result.return_value == [("checkpoint_0", "VALIDATED", 0), ("checkpoint_1", "VALIDATED", 10), ("checkpoint_3", "VALIDATED", -3)]
    assert result.metrics["worth"] == -3 and result.metrics["validator"] != os.getpid()
    assert [metrics.get("worth") for _, metrics in result.best_checkpoints] == [-3, 0, 10]
    state = json.loads((Path(result.path) / "checkpoint_manager_snapshot.json").read_text())
    assert state["pending_training_results"] == [] and len(state["validated_checkpoint_dir_names"]) == 3
    assert train.Result.from_path(result.path).get_best_checkpoint("worth", "max") == result.best_checkpoints[-1][0]


def test_a_validation_that_fails_or_takes_too_long_leaves_its_checkpoint(fit, tmp_path: Path, capfd) -> None:
    def validate(checkpoint: Checkpoint, way: str) -> Any:
        if way == "hangs":
            time.sleep(1000)
        return {"returns": 3}[way]

    def function() -> list[str]:
        for number, way in enumerate(["raises", "returns", "hangs"]):
            limit = 0.5 if way == "hangs" else None
            train.report({}, numbered(tmp_path, number), f"checkpoint_{number}", validation=ValidationTaskConfig({"way": way}, limit))
        return [one.status.value for one in train.get_all_reported_checkpoints()]

    result = fit(function, 1, validation_config=ValidationConfig(validate))
    assert result.return_value == ["VALIDATION_FAILED", "VALIDATION_FAILED", "VALIDATION_TIMEOUT"]
    assert len(result.best_checkpoints) == 3
    said = capfd.readouterr().err
    assert "KeyError: 'raises'" in said and "returned a int" in said and "took longer than its timeout_s" in said


def test_training_does_not_wait_and_what_is_due_is_done_by_the_next_run(fit, tmp_path: Path) -> None:
    def validate(checkpoint: Checkpoint) -> dict[str, Any]:
        if not (tmp_path / "gate").exists():
            time.sleep(1000)
        return {"worth": 1}

    def function() -> int:
        if train.get_checkpoint() is None:
            for number in range(2):
                train.report({}, numbered(tmp_path, number), validation=True)
            for told in (
                train.get_all_reported_checkpoints(CheckpointConsistencyMode.COMMITTED),
                train.get_all_reported_checkpoints(timeout_s=0.2),
            ):
                assert [one.status for one in told] == [ReportedCheckpointStatus.PENDING_VALIDATION] * 2
            raise RuntimeError("both are due")
        return len([one for one in train.get_all_reported_checkpoints() if one.metrics == {"worth": 1}])

    validation = ValidationConfig(validate)
    with pytest.raises(train.WorkerGroupError, match="both are due"):
        fit(function, 1, validation_config=validation)
    (tmp_path / "gate").touch()
    assert fit(function, 1, validation_config=validation).return_value == 2


def test_a_validation_without_room_is_explained(fit, tmp_path: Path, capfd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oxiray.train._validation._FIRST_WORD_S", 0.2)
    told: list[str] = []

    def function() -> str:
        train.report({}, numbered(tmp_path, 7), validation=True)
        # The workers hold every processor of the machine until they have seen that it is said.
        wait_until(lambda: (tmp_path / "said").exists())
        return str(train.get_all_reported_checkpoints(timeout_s=0)[0].status.value)

    def look() -> None:
        def is_said() -> bool:
            told.append(capfd.readouterr().err)
            return "has not begun" in "".join(told)

        wait_until(is_said)
        (tmp_path / "said").touch()

    looking = threading.Thread(target=look)
    looking.start()
    scaling = train.ScalingConfig(num_workers=1, resources_per_worker={"CPU": ray.cluster_resources()["CPU"]})
    result = fit(function, scaling=scaling, validation_config=ValidationConfig(measure))
    looking.join()
    assert "It needs room beside the workers" in "".join(told)
    assert result.return_value == "PENDING_VALIDATION" and result.metrics["worth"] == 7, "it had room after the workers"


def test_what_validation_refuses(fit, tmp_path: Path) -> None:
    def function() -> list[str]:
        texts = []
        own = numbered(tmp_path, 0)
        for checkpoint, validation in ((None, True), (own, True), (own, ValidationTaskConfig({"x": object()}))):
            try:
                train.report({}, checkpoint, validation=validation)
            except ValueError as error:
                texts.append(str(error))
        return texts

    first, second, third = fit(function, 1, name="without").return_value[:2] + fit(function, 1, validation_config=ValidationConfig(measure)).return_value[-1:]
    assert "needs a checkpoint" in first and "validation_config=ValidationConfig(fn)" in second and "JSON" in third
    lock = __import__("threading").Lock()
    with pytest.raises(TypeError, match="validation_config cannot be sent to the workers"):
        fit(function, 1, validation_config=ValidationConfig(lambda checkpoint: lock))
    for make, says in (
        (lambda: ValidationConfig(3), "must be a function"),
        (lambda: ValidationConfig(print, task_config={}), "ValidationTaskConfig"),
        (lambda: ValidationTaskConfig(timeout_s=0), "seconds above 0"),
        (lambda: fit(function, 1, validation_config=print), "takes a ray.train.ValidationConfig"),
    ):
        with pytest.raises(ValueError, match=says):
            make()
