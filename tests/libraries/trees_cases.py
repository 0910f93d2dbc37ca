"""Cases of Ray Train's trainers for XGBoost and LightGBM, whose files are Ray's, and of their callbacks for Ray Tune."""

from __future__ import annotations

import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy
import ray
import ray.data
from ray import train, tune

ROWS, ROUNDS = 400, 5


def _rows() -> Any:
    """Numbers, and whether their sum is above the middle."""
    features = numpy.random.default_rng(5).random((ROWS, 4))
    columns = {f"x{index}": features[:, index] for index in range(4)}
    return {**columns, "y": (features.sum(1) > 2).astype(int)}


def table(shard: Any) -> tuple[Any, Any]:
    """A shard's features and labels."""
    frame = shard.materialize().to_pandas()
    return frame.drop(columns="y").to_numpy(dtype=float), frame["y"].to_numpy(dtype=int)


def fit(trainer: type, function: Any, workers: int) -> Any:
    with tempfile.TemporaryDirectory() as storage:
        result = trainer(
            function,
            datasets={"train": ray.data.from_items([dict(zip(_rows(), row)) for row in zip(*_rows().values())], override_num_blocks=4)},
            scaling_config=train.ScalingConfig(num_workers=workers),
            run_config=train.RunConfig(storage_path=storage, name="run"),
        ).fit()
        kept = result.checkpoint
        assert kept is not None
        with kept.as_directory() as folder:
            files = sorted(path.name for path in Path(folder).iterdir() if not path.name.startswith("."))
        return result.metrics, files


def boosts(config: dict[str, Any]) -> None:
    import xgboost
    from ray.train.xgboost import RayTrainReportCallback

    features, labels = table(train.get_dataset_shard("train"))
    data = xgboost.DMatrix(features, labels)
    told = {"objective": "binary:logistic", "tree_method": "hist", "nthread": 1, "eval_metric": "error"}
    model = xgboost.train(told, data, ROUNDS, evals=[(data, "train")], callbacks=[RayTrainReportCallback(metrics={"error": "train-error"})])
    # All ranks have the same trees only where they have spoken to each other.
    trees = zlib.crc32("".join(model.get_dump()).encode())
    assert trees == train.collective.broadcast_from_rank_zero(trees)
    assert xgboost.collective.get_world_size() == train.get_context().get_world_size()


def xgboost_on_two_workers() -> list[Any]:
    from ray.train.xgboost import XGBoostTrainer

    metrics, files = fit(XGBoostTrainer, boosts, 2)
    return [bool(metrics["error"] < 0.2), files]


def learns(config: dict[str, Any]) -> None:
    import lightgbm
    from ray.train.lightgbm import RayTrainReportCallback, get_network_params

    features, labels = table(train.get_dataset_shard("train"))
    data = lightgbm.Dataset(features, labels)
    told = {"objective": "binary", "metric": "binary_error", "num_threads": 1, "verbose": -1, "tree_learner": "data", "min_data": 5}
    told |= {"pre_partition": True, **get_network_params()}
    assert told["num_machines"] == train.get_context().get_world_size()
    model = lightgbm.train(told, data, ROUNDS, valid_sets=[data], valid_names=["train"], callbacks=[RayTrainReportCallback()])
    trees = zlib.crc32(model.model_to_string().partition("parameters:")[0].encode())
    assert trees == train.collective.broadcast_from_rank_zero(trees)


def lightgbm_on_two_workers() -> list[Any]:
    from ray.train.lightgbm import LightGBMTrainer

    metrics, files = fit(LightGBMTrainer, learns, 2)
    return [bool(metrics["train-binary_error"] < 0.2), files]


def searched(function: Any) -> Any:
    with tempfile.TemporaryDirectory() as storage:
        run = tune.RunConfig(storage_path=storage, name="run", verbose=0)
        results = tune.Tuner(function, param_space={"depth": tune.grid_search([1, 3])}, run_config=run).fit()
        best = results.get_best_result("error", "min")
        with best.checkpoint.as_directory() as folder:
            files = sorted(path.name for path in Path(folder).iterdir() if not path.name.startswith("."))
        return [results.num_errors, best.config["depth"], best.metrics["training_iteration"], files]


def xgboost_searched_by_tune() -> list[Any]:
    def trial(config: dict[str, Any]) -> None:
        import xgboost
        from ray.tune.integration.xgboost import TuneReportCheckpointCallback

        columns = _rows()
        labels = columns.pop("y")
        data = xgboost.DMatrix(numpy.stack(list(columns.values()), 1), labels)
        told = {"objective": "binary:logistic", "max_depth": config["depth"], "eval_metric": "error", "nthread": 1}
        report = TuneReportCheckpointCallback({"error": "train-error"}, frequency=1)
        xgboost.train(told, data, ROUNDS, evals=[(data, "train")], callbacks=[report], verbose_eval=False)

    return list(searched(trial))


def lightgbm_searched_by_tune() -> list[Any]:
    def trial(config: dict[str, Any]) -> None:
        import lightgbm
        from ray.tune.integration.lightgbm import TuneReportCheckpointCallback

        columns = _rows()
        labels = columns.pop("y")
        data = lightgbm.Dataset(numpy.stack(list(columns.values()), 1), labels)
        told = {"objective": "binary", "max_depth": config["depth"], "metric": "binary_error", "num_threads": 1, "verbose": -1}
        report = TuneReportCheckpointCallback({"error": "train-binary_error"}, frequency=1)
        lightgbm.train(told, data, ROUNDS, valid_sets=[data], valid_names=["train"], callbacks=[report])

    return list(searched(trial))
