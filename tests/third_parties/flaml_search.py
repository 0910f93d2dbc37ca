"""FLAML's searches with their trials on Ray: of a function, and of estimators."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import ray
from flaml import AutoML, BlendSearch, tune
from sklearn.datasets import load_iris


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=4)
    yield
    ray.shutdown()


def parabola(config: dict[str, float]) -> dict[str, float]:
    return {"loss": (config["x"] - 3) ** 2 + config["y"]}


SPACE = {"x": tune.uniform(0, 10), "y": tune.randint(1, 4)}


def test_a_function_is_searched() -> None:
    found = tune.run(parabola, config=SPACE, metric="loss", mode="min", num_samples=8, use_ray=True, resources_per_trial={"cpu": 1}, verbose=0)
    assert len(found.trials) == 8
    assert {trial.status for trial in found.trials} == {"TERMINATED"}
    best = found.best_config
    assert found.best_result["loss"] == parabola(best)["loss"] == min(trial.last_result["loss"] for trial in found.trials)


def test_a_search_starts_where_it_is_told_to() -> None:
    search = BlendSearch(metric="loss", mode="min", space=SPACE, points_to_evaluate=[{"x": 3.0, "y": 1}])
    found = tune.run(parabola, search_alg=search, num_samples=8, use_ray=True, resources_per_trial={"cpu": 1}, verbose=0)
    assert found.get_best_trial("loss", "min").config == {"x": 3.0, "y": 1}
    assert found.get_best_trial("loss", "min").last_result["loss"] == 1


def climbing(config: dict[str, float]) -> None:
    for step in range(1, 9):
        tune.report(score=config["x"] * step, step=step)


def test_a_scheduler_ends_what_does_not_get_far() -> None:
    found = tune.run(
        climbing, config={"x": tune.uniform(0, 10)}, metric="score", mode="max", scheduler="asha", resource_attr="step", min_resource=1,
        max_resource=8, reduction_factor=2, num_samples=8, use_ray=True, resources_per_trial={"cpu": 1}, verbose=0,
    )  # fmt: skip
    steps = [trial.last_result["step"] for trial in found.trials]
    assert len(steps) == 8 and max(steps) == 8


def test_estimators_are_searched() -> None:
    features, labels = load_iris(return_X_y=True)
    search = AutoML()
    search.fit(
        features, labels, task="classification", estimator_list=["lgbm", "rf"], max_iter=6, time_budget=120, use_ray=True, n_concurrent_trials=2,
        seed=7, verbose=0,
    )  # fmt: skip
    assert search.best_estimator in {"lgbm", "rf"}
    assert search.score(features, labels, metric="accuracy") > 0.9
