"""Cases of Ray Tune: each function uses the library and returns what JSON can hold. They run on Oxiray and on Ray alike."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining


def settings(folder: str, **more: Any) -> Any:
    return tune.RunConfig(storage_path=folder, name="run", verbose=0, **more)


def fit(trainable: Any, space: dict[str, Any], folder: str, run: dict[str, Any] | None = None, **config: Any) -> Any:
    tuner = tune.Tuner(
        trainable, param_space=space, tune_config=tune.TuneConfig(**config), run_config=settings(folder, **(run or {}))
    )
    return tuner.fit()


def square(config: dict[str, Any]) -> None:
    tune.report({"score": (config["x"] - 3) ** 2})


def grid_search() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        results = fit(square, {"x": tune.grid_search([1, 2, 3, 4])}, folder, metric="score", mode="min")
        return [results.get_best_result().config["x"], len(results), results.num_errors]


def returned_value() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        results = fit(lambda config: {"score": config["x"] * 2}, {"x": tune.grid_search([1, 5])}, folder)
        return sorted(result.metrics["score"] for result in results)


def random_samples() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        space = {"x": tune.uniform(0, 1), "y": tune.choice(["a", "b"]), "z": tune.randint(3, 5)}
        results = fit(lambda config: {"ok": 0 <= config["x"] <= 1 and config["z"] in (3, 4)}, space, folder, num_samples=4)
        return [result.metrics["ok"] for result in results]


class Counter(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.count = config["start"]

    def step(self) -> dict[str, Any]:
        self.count += 1
        return {"count": self.count}

    def save_checkpoint(self, folder: str) -> None:
        Path(folder, "count.json").write_text(json.dumps(self.count))

    def load_checkpoint(self, folder: str) -> None:
        self.count = json.loads(Path(folder, "count.json").read_text())


def class_trainable() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        run = {"stop": {"training_iteration": 3}}
        results = fit(Counter, {"start": tune.grid_search([0, 10])}, folder, run)
        return sorted([result.metrics["count"], result.metrics["training_iteration"]] for result in results)


def class_checkpoints() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        run = {"stop": {"training_iteration": 4}, "checkpoint_config": tune.CheckpointConfig(checkpoint_frequency=2)}
        result = fit(Counter, {"start": 0}, folder, run)[0]
        with result.checkpoint.as_directory() as kept:
            return json.loads(Path(kept, "count.json").read_text())


def keeping(config: dict[str, Any]) -> None:
    for step in range(3):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step").write_text(str(step))
            tune.report({"step": step}, checkpoint=tune.Checkpoint.from_directory(folder))


def function_checkpoints() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        run = {"checkpoint_config": tune.CheckpointConfig(num_to_keep=2)}
        result = fit(keeping, {}, folder, run)[0]
        with result.checkpoint.as_directory() as kept:
            return [Path(kept, "step").read_text(), len(result.best_checkpoints)]


def climbing(config: dict[str, Any]) -> None:
    for step in range(8):
        tune.report({"score": config["rate"] * (step + 1)})


def early_stopping() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        scheduler = ASHAScheduler(max_t=8, grace_period=1, reduction_factor=2)
        space = {"rate": tune.grid_search([4, 3, 2, 1])}
        results = fit(climbing, space, folder, metric="score", mode="max", scheduler=scheduler, max_concurrent_trials=1)
        return [results.get_best_result().config["rate"], min(result.metrics["training_iteration"] for result in results) < 8]


class Learner(Counter):
    def setup(self, config: dict[str, Any]) -> None:
        self.count, self.rate = 0, config["rate"]

    def step(self) -> dict[str, Any]:
        self.count += self.rate
        return {"score": self.count}

    def reset_config(self, config: dict[str, Any]) -> bool:
        self.rate = config["rate"]
        return True


def population() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        scheduler = PopulationBasedTraining(
            time_attr="training_iteration", perturbation_interval=2, hyperparam_mutations={"rate": [1, 2, 5]}, synch=True
        )
        run = {"stop": {"training_iteration": 6}, "checkpoint_config": tune.CheckpointConfig(checkpoint_frequency=2)}
        space = {"rate": tune.grid_search([1, 5])}
        results = fit(Learner, space, folder, run, metric="score", mode="max", scheduler=scheduler, reuse_actors=True)
        return [results.num_errors, all(result.metrics["training_iteration"] == 6 for result in results)]


def optuna_search() -> Any:
    from ray.tune.search.optuna import OptunaSearch

    with tempfile.TemporaryDirectory() as folder:
        search = OptunaSearch(seed=1)
        results = fit(square, {"x": tune.uniform(0, 6)}, folder, metric="score", mode="min", num_samples=5, search_alg=search)
        return [len(results), results.num_errors, results.get_best_result().metrics["score"] < 9]


def failing_once(config: dict[str, Any]) -> None:
    mark = Path(config["folder"], "was-here")
    if not mark.exists():
        mark.touch()
        os._exit(1)
    tune.report({"done": 1})


def retries() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        run = {"failure_config": tune.FailureConfig(max_failures=2)}
        results = fit(failing_once, {"folder": folder}, folder, run)
        return [results.num_errors, results[0].metrics["done"]]


def raising(config: dict[str, Any]) -> None:
    if config["x"] == 2:
        raise ValueError("bad x")
    tune.report({"x": config["x"]})


def errors_of_trials() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        results = fit(raising, {"x": tune.grid_search([1, 2])}, folder)
        return [results.num_errors, len(results.errors), "bad x" in str(results.errors[0])]


def restoring() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        mark = Path(folder, "go")

        def wanting(config: dict[str, Any]) -> None:
            if config["x"] == 2 and not mark.exists():
                raise ValueError("not yet")
            tune.report({"x": config["x"]})

        first = fit(wanting, {"x": tune.grid_search([1, 2])}, folder)
        mark.touch()
        restored = tune.Tuner.restore(f"{folder}/run", trainable=wanting, restart_errored=True)
        return [first.num_errors, sorted(result.metrics["x"] for result in restored.fit())]


@ray.remote(num_cpus=1)
def helper(x: int) -> int:
    return x + 1


def spreading(config: dict[str, Any]) -> None:
    tune.report({"sum": sum(ray.get([helper.remote(number) for number in range(3)]))})


def placement_groups() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        asked = tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}])
        results = fit(tune.with_resources(spreading, asked), {}, folder)
        return [results.num_errors, results[0].metrics["sum"]]


def parameters() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        large = list(range(100_000))
        results = fit(tune.with_parameters(lambda config, data: {"sum": sum(data)}, data=large), {}, folder)
        return results[0].metrics["sum"]


def frames_and_logs() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        results = fit(climbing, {"rate": tune.grid_search([1, 2])}, folder)
        frame = results.get_dataframe()
        written = sorted(path.name for path in Path(folder, "run").rglob("*") if path.name in ("result.json", "progress.csv"))
        return [sorted(frame["score"]), len(results[0].metrics_dataframe), written]
