"""joblib's Ray backend, by itself and under scikit-learn: the results are those of one process."""

from __future__ import annotations

import math

import joblib
from ray.util.joblib import register_ray
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV


def failing(number: int) -> float:
    if number == 7:
        raise ValueError("seven")
    return math.sqrt(number)


def main() -> None:
    register_ray()
    with joblib.parallel_backend("ray", n_jobs=2):
        roots = joblib.Parallel()(joblib.delayed(math.sqrt)(number) for number in range(1000))
    assert roots == [math.sqrt(number) for number in range(1000)]

    try:
        with joblib.parallel_backend("ray", n_jobs=2):
            joblib.Parallel()(joblib.delayed(failing)(number) for number in range(20))
    except ValueError as error:
        assert "seven" in str(error)
    else:
        raise AssertionError("the exception of a job was swallowed")

    features, labels = make_classification(n_samples=300, n_features=12, random_state=5)
    grid = {"max_depth": [2, 4], "min_samples_leaf": [1, 3]}

    def best() -> tuple[dict[str, int], float]:
        search = GridSearchCV(RandomForestClassifier(n_estimators=10, random_state=5), grid, cv=3, n_jobs=2)
        search.fit(features, labels)
        return search.best_params_, search.best_score_

    with joblib.parallel_backend("ray", n_jobs=2):
        here = best()
    with joblib.parallel_backend("sequential"):
        assert here == best()
    print("equal")


if __name__ == "__main__":
    main()
