"""AutoGluon's tabular models on Ray: folds that are fitted side by side, models side by side, and a search with Ray Tune."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import ray
from autogluon.common import space
from autogluon.tabular import TabularPredictor
from sklearn.datasets import make_classification


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=4)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    features, labels = make_classification(n_samples=400, n_features=6, random_state=7)
    return pd.DataFrame(features, columns=[f"f{number}" for number in range(6)]).assign(label=labels)


def predictor(folder: Path) -> TabularPredictor:
    return TabularPredictor(label="label", path=str(folder / "models"), verbosity=0)


def test_folds_are_fitted_side_by_side(rows: pd.DataFrame, tmp_path: Path) -> None:
    made = predictor(tmp_path).fit(
        rows, hyperparameters={"GBM": {"num_boost_round": 20}}, num_bag_folds=4, num_bag_sets=1, num_stack_levels=0, dynamic_stacking=False,
        num_cpus=4, num_gpus=0, fit_weighted_ensemble=False, ag_args_ensemble={"fold_fitting_strategy": "parallel_local"},
    )  # fmt: skip
    assert list(made.leaderboard(silent=True)["model"]) == ["LightGBM_BAG_L1"]
    assert made.evaluate(rows)["accuracy"] > 0.9
    children = made.info()["model_info"]["LightGBM_BAG_L1"]["children_info"]
    assert len(children) == 4


def test_models_are_fitted_side_by_side(rows: pd.DataFrame, tmp_path: Path) -> None:
    made = predictor(tmp_path).fit(
        rows, hyperparameters={"GBM": [{"num_boost_round": 10}, {"num_boost_round": 20, "ag_args": {"name_suffix": "More"}}]},
        fit_strategy="parallel", dynamic_stacking=False, num_cpus=4, num_gpus=0, fit_weighted_ensemble=False,
    )  # fmt: skip
    assert set(made.leaderboard(silent=True)["model"]) == {"LightGBM", "LightGBMMore"}


def test_hyperparameters_are_searched_in_bagged_models(rows: pd.DataFrame, tmp_path: Path) -> None:
    made = predictor(tmp_path).fit(
        rows, hyperparameters={"GBM": {"num_boost_round": 20, "num_leaves": space.Int(4, 32)}}, num_bag_folds=2, num_bag_sets=1,
        num_stack_levels=0, dynamic_stacking=False, num_cpus=4, num_gpus=0, fit_weighted_ensemble=False,
        hyperparameter_tune_kwargs={"num_trials": 3, "scheduler": "local", "searcher": "random"},
    )  # fmt: skip
    assert len(made.leaderboard(silent=True)) == 3
