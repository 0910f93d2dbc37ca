"""Cases of Ray Tune: each function uses the library and returns what JSON can hold. They run on Oxiray and on Ray alike."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter as Counts
from pathlib import Path
from typing import Any

import numpy
import ray
from ray import tune
from ray.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
    ResourceChangingScheduler,
)
from ray.tune.schedulers.resource_changing_scheduler import DistributeResources
from ray.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher
from ray.tune.stopper import (
    CombinedStopper,
    ExperimentPlateauStopper,
    MaximumIterationStopper,
    TimeoutStopper,
    TrialPlateauStopper,
)


def name_of(folder: str) -> str:
    """The experiment's name there. Tune keeps two of one name apart only where they begin in different seconds."""
    return f"run-{Path(folder).name}"


def settings(folder: str, **more: Any) -> Any:
    return tune.RunConfig(storage_path=folder, name=name_of(folder), verbose=0, **more)


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
        restored = tune.Tuner.restore(f"{folder}/{name_of(folder)}", trainable=wanting, restart_errored=True)
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
        written = sorted(path.name for path in Path(folder, name_of(folder)).rglob("*") if path.name in ("result.json", "progress.csv"))
        return [sorted(frame["score"]), len(results[0].metrics_dataframe), written]


def hyperband() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        run = {"stop": {"training_iteration": 9}, "checkpoint_config": tune.CheckpointConfig(checkpoint_frequency=1)}
        scheduler = HyperBandScheduler(max_t=9, reduction_factor=3)
        space = {"rate": tune.grid_search([1, 2, 3])}
        results = fit(Learner, space, folder, run, metric="score", mode="max", scheduler=scheduler)
        return [results.num_errors, results.get_best_result().config["rate"]]


def median_stopping() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        scheduler = MedianStoppingRule(time_attr="training_iteration", grace_period=2, min_samples_required=2)
        space = {"rate": tune.grid_search([9, 8, 1])}
        results = fit(climbing, space, folder, metric="score", mode="max", scheduler=scheduler, max_concurrent_trials=1)
        ran = {result.config["rate"]: result.metrics["training_iteration"] for result in results}
        return [ran[9], ran[8], ran[1]]


def brackets_of_early_stopping() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        scheduler = ASHAScheduler(time_attr="step", max_t=8, grace_period=2, reduction_factor=2, brackets=1)
        space = {"rate": tune.grid_search([8, 7, 6, 5])}
        results = fit(stepping, space, folder, metric="score", mode="max", scheduler=scheduler, max_concurrent_trials=1)
        return sorted([result.config["rate"], result.metrics["step"]] for result in results)


def stepping(config: dict[str, Any]) -> None:
    for step in range(1, 9):
        tune.report({"score": config["rate"] * step, "step": step})


def a_policy_is_replayed() -> Any:
    """What a population did to one trial is done again, from its written policy."""
    with tempfile.TemporaryDirectory() as folder:
        policy = Path(folder, "pbt_policy_0.txt")
        old, new = {"rate": 1}, {"rate": 5}
        policy.write_text(json.dumps(["0", "1", 2, 2, old, new]) + "\n")
        replay = PopulationBasedTrainingReplay(str(policy))
        run = {"stop": {"training_iteration": 4}, "checkpoint_config": tune.CheckpointConfig(checkpoint_frequency=1)}
        result = fit(Learner, {}, folder, run, metric="score", mode="max", scheduler=replay)[0]
        return [replay.config, result.metrics["score"]]


def resources_that_change() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        scheduler = ResourceChangingScheduler(FIFOScheduler(), DistributeResources(increase_by={"CPU": 1}, increase_by_times=1))
        run = {"stop": {"training_iteration": 6}, "checkpoint_config": tune.CheckpointConfig(checkpoint_frequency=1)}
        results = fit(tune.with_resources(Sized, {"CPU": 1}), {}, folder, run, metric="count", mode="max", scheduler=scheduler)
        return [results.num_errors, results[0].metrics["count"], results[0].metrics["cpus"]]


class Sized(tune.Trainable):
    """Counts, and says how many processors it has."""

    def setup(self, config: dict[str, Any]) -> None:
        self.count = 0

    def step(self) -> dict[str, Any]:
        self.count += 1
        return {"count": self.count, "cpus": self.trial_resources.required_resources["CPU"]}

    def save_checkpoint(self, folder: str) -> dict[str, Any]:
        return {"count": self.count}

    def load_checkpoint(self, kept: dict[str, Any]) -> None:
        self.count = kept["count"]


class Halving(Searcher):
    """A search of one's own: halves its interval towards the better half."""

    def __init__(self) -> None:
        super().__init__(metric="score", mode="min")
        self.low, self.high, self.open = 0.0, 8.0, {}

    def suggest(self, trial: str) -> dict[str, Any]:
        self.open[trial] = (self.low + self.high) / 2
        return {"x": self.open[trial]}

    def on_trial_complete(self, trial: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        middle = self.open.pop(trial)
        if middle > 3:
            self.high = middle
        else:
            self.low = middle

    def save(self, path: str) -> None:
        Path(path).write_text(json.dumps([self.low, self.high]))

    def restore(self, path: str) -> None:
        self.low, self.high = json.loads(Path(path).read_text())


def an_own_search() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        results = fit(square, {}, folder, search_alg=ConcurrencyLimiter(Halving(), max_concurrent=1), num_samples=6)
        return [result.config["x"] for result in results]


def trials_that_are_repeated() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        search = Repeater(ConcurrencyLimiter(Halving(), max_concurrent=1), repeat=2)
        results = fit(square, {}, folder, search_alg=search, num_samples=4)
        return sorted([result.config["x"], result.config["__trial_index__"]] for result in results)


def hyperopt_search() -> Any:
    from ray.tune.search.hyperopt import HyperOptSearch

    with tempfile.TemporaryDirectory() as folder:
        search = HyperOptSearch(points_to_evaluate=[{"x": 3}], random_state_seed=2, n_initial_points=2)
        results = fit(square, {"x": tune.randint(0, 7)}, folder, metric="score", mode="min", num_samples=4, search_alg=search)
        return [len(results), results.get_best_result().config["x"]]


def optuna_of_two_goals() -> Any:
    import optuna
    from ray.tune.search.optuna import OptunaSearch

    def both(config: dict[str, Any]) -> None:
        tune.report({"one": config["x"], "other": -config["x"]})

    with tempfile.TemporaryDirectory() as folder:
        sampler = optuna.samplers.RandomSampler(seed=4)
        search = OptunaSearch(metric=["one", "other"], mode=["min", "max"], sampler=sampler)
        results = fit(both, {"x": tune.randint(0, 100)}, folder, num_samples=4, search_alg=search, max_concurrent_trials=1)
        return [result.metrics["one"] for result in results]


def variants_of_a_seed() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        space = {"x": tune.randint(0, 1000), "y": tune.grid_search([1, 2]), "z": tune.sample_from(lambda spec: spec.config.y * 10)}
        search = BasicVariantGenerator(random_state=7, points_to_evaluate=[{"x": 5}], max_concurrent=2)
        results = fit(lambda config: {"sum": config["x"] + config["z"]}, space, folder, num_samples=2, search_alg=search)
        return sorted([result.config["x"], result.config["y"], result.config["z"]] for result in results)


def spaces_of_all_kinds() -> Any:
    """Values sampled from each kind of space, with the seed that Tune's own generator takes."""
    space = {
        "log": tune.loguniform(1e-4, 1e-1),
        "step": tune.quniform(0, 10, 2.5),
        "even": tune.qrandint(0, 100, 10),
        "wide": tune.lograndint(1, 1000),
        "near": tune.randn(10, 2),
        "nested": {"inner": tune.choice([[1, 2], [3]])},
    }
    with tempfile.TemporaryDirectory() as folder:
        results = fit(lambda config: {"ok": True}, space, folder, num_samples=3, search_alg=BasicVariantGenerator(random_state=3))
        return sorted(
            [round(float(one["log"]), 6), float(one["step"]), int(one["even"]), int(one["wide"]), round(float(one["near"]), 4), one["nested"]["inner"]]
            for one in (result.config for result in results)
        )


def stopped_by_a_plateau() -> Any:
    def flat(config: dict[str, Any]) -> None:
        for step in range(20):
            tune.report({"loss": max(10 - 2 * step, 1)})

    with tempfile.TemporaryDirectory() as folder:
        stopper = TrialPlateauStopper("loss", std=0.01, num_results=3, grace_period=3)
        return fit(flat, {}, folder, {"stop": stopper})[0].metrics["training_iteration"]


def stopped_by_one_of_several() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        stopper = CombinedStopper(MaximumIterationStopper(5), TimeoutStopper(600))
        results = fit(climbing, {"rate": tune.grid_search([1, 2])}, folder, {"stop": stopper})
        return [result.metrics["training_iteration"] for result in results]


def an_experiment_that_no_longer_improves() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        stopper = ExperimentPlateauStopper("score", std=0.001, top=2, mode="min")
        results = fit(lambda config: {"score": 1.0}, {}, folder, {"stop": stopper}, num_samples=50, max_concurrent_trials=1)
        return [len(results) < 50, results.num_errors]


def stopped_by_a_function() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        results = fit(climbing, {"rate": tune.grid_search([1, 4])}, folder, {"stop": lambda trial, result: result["score"] >= 8})
        return sorted([result.config["rate"], result.metrics["training_iteration"]] for result in results)


def resuming(config: dict[str, Any]) -> None:
    """Dies once in the middle, and goes on from what it had kept."""
    kept = tune.get_checkpoint()
    begin = 0
    if kept is not None:
        with kept.as_directory() as folder:
            begin = int(Path(folder, "step").read_text()) + 1
    for step in range(begin, 5):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step").write_text(str(step))
            tune.report({"step": step, "begin": begin}, checkpoint=tune.Checkpoint.from_directory(folder))
        if step == 2 and begin == 0:
            raise RuntimeError("in the middle")


def going_on_from_a_checkpoint() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        run = {"failure_config": tune.FailureConfig(max_failures=1)}
        result = fit(resuming, {}, folder, run)[0]
        return [result.metrics["step"], result.metrics["begin"], len(list(Path(result.path).glob("checkpoint_*")))]


def the_best_checkpoints_are_kept() -> Any:
    def scored(config: dict[str, Any]) -> None:
        for score in (1, 5, 3, 4):
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "score").write_text(str(score))
                tune.report({"score": score}, checkpoint=tune.Checkpoint.from_directory(folder))

    with tempfile.TemporaryDirectory() as folder:
        keep = tune.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="score", checkpoint_score_order="max")
        result = fit(scored, {}, folder, {"checkpoint_config": keep})[0]
        with result.get_best_checkpoint("score", "max").as_directory() as best:
            return [sorted(metrics["score"] for _, metrics in result.best_checkpoints), Path(best, "score").read_text()]


def a_checkpoint_at_the_end() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        run = {"stop": {"training_iteration": 3}, "checkpoint_config": tune.CheckpointConfig(checkpoint_at_end=True)}
        result = fit(Counter, {"start": 7}, folder, run)[0]
        with result.checkpoint.as_directory() as kept:
            return json.loads(Path(kept, "count.json").read_text())


class Noting(tune.Callback):
    """Counts what it is told of."""

    def __init__(self) -> None:
        self.seen = Counts()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.seen["start"] += 1

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any) -> None:
        self.seen["result"] += 1

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.seen["complete"] += 1

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        self.seen["end"] += len(trials)


def callbacks_are_told() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        noting = Noting()
        fit(climbing, {"rate": tune.grid_search([1, 2])}, folder, {"callbacks": [noting]})
        return dict(sorted(noting.seen.items()))


def loggers_write_files() -> Any:
    from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback

    with tempfile.TemporaryDirectory() as folder:
        run = {"callbacks": [CSVLoggerCallback(), JsonLoggerCallback(), TBXLoggerCallback()]}
        result = fit(climbing, {"rate": 2}, folder, run)[0]
        names = {path.name.partition(".out")[0] for path in Path(result.path).iterdir() if path.is_file()}
        lines = Path(result.path, "result.json").read_text().splitlines()
        return [sorted(names & {"result.json", "progress.csv", "params.json", "events"}), len(lines), json.loads(lines[-1])["score"]]


def names_of_trials_and_folders() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        results = fit(
            square, {"x": tune.grid_search([1, 2])}, folder,
            trial_name_creator=lambda trial: f"try-{trial.config['x']}", trial_dirname_creator=lambda trial: f"folder-{trial.config['x']}",
        )  # fmt: skip
        return sorted(Path(result.path).name for result in results)


def a_trial_knows_its_context() -> Any:
    def telling(config: dict[str, Any]) -> None:
        context = tune.get_context()
        tune.report({"name": context.get_experiment_name(), "cpus": context.get_trial_resources().required_resources["CPU"]})
        Path("artifact.txt").write_text("kept")

    with tempfile.TemporaryDirectory() as folder:
        result = fit(tune.with_resources(telling, {"cpu": 2}), {}, folder)[0]
        return [result.metrics["name"] == name_of(folder), result.metrics["cpus"]]


def resources_of_each_configuration() -> Any:
    def telling(config: dict[str, Any]) -> None:
        tune.report({"cpus": tune.get_context().get_trial_resources().required_resources["CPU"]})

    with tempfile.TemporaryDirectory() as folder:
        sized = tune.with_resources(telling, lambda config: {"cpu": config["cpus"]})
        results = fit(sized, {"cpus": tune.grid_search([1, 2])}, folder)
        return sorted(result.metrics["cpus"] for result in results)


def a_trial_without_room_for_what_it_launches() -> Any:
    """What a trial starts that its resources have no room for is refused, where it would wait for ever."""

    def launching(config: dict[str, Any]) -> None:
        @ray.remote(num_cpus=1)
        def task() -> int:
            return 1

        @ray.remote(num_cpus=1)
        class Actor:
            def answer(self) -> int:
                return 2

        called = task.remote() if config["kind"] == "task" else Actor.remote().answer.remote()
        tune.report({"value": ray.get(called)})

    with tempfile.TemporaryDirectory() as folder:
        space = {"kind": tune.grid_search(["task", "actor"])}
        texts = [str(result.error) for result in fit(launching, space, folder)]
        roomy = tune.with_resources(launching, tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}]))
        values = [result.metrics["value"] for result in fit(roomy, space, folder)]
    refused = [f"No trial resources are available for launching the {kind}" in text for kind, text in zip(("task", "actor"), texts, strict=True)]
    return [refused, values]


def failing_fast() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        run = {"failure_config": tune.FailureConfig(fail_fast=True)}
        space = {"x": tune.grid_search([2, 1, 1, 1, 1, 1])}
        results = fit(raising, space, folder, run, max_concurrent_trials=1)
        return [results.num_errors, sum(1 for result in results if "x" in (result.metrics or {}))]


def a_budget_of_time() -> Any:
    def endless(config: dict[str, Any]) -> None:
        import time

        while True:
            tune.report({"here": 1})
            time.sleep(0.05)

    with tempfile.TemporaryDirectory() as folder:
        results = fit(endless, {}, folder, time_budget_s=3)
        return [results.num_errors, results[0].metrics["here"]]


def experiments_of_the_older_interface() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        analysis = tune.run(
            climbing, config={"rate": tune.grid_search([1, 3])}, metric="score", mode="max", storage_path=folder, name="old", verbose=0
        )  # fmt: skip
        return [analysis.best_config["rate"], analysis.best_result["score"], len(analysis.trials), sorted(analysis.dataframe()["score"])]


def registered_names_are_run() -> Any:
    tune.register_trainable("climbs", climbing)
    with tempfile.TemporaryDirectory() as folder:
        return fit("climbs", {"rate": 3}, folder)[0].metrics["score"]


def results_are_read_again() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        fit(climbing, {"rate": tune.grid_search([1, 2])}, folder)
        again = tune.Tuner.restore(f"{folder}/{name_of(folder)}", trainable=climbing).get_results()
        best = again.get_best_result("score", "max")
        return [len(again), best.config["rate"], best.metrics["score"], again.num_terminated]


def datasets_and_arrays_as_parameters() -> Any:
    import ray.data

    def summing(config: dict[str, Any], data: Any, weights: Any) -> None:
        tune.report({"sum": sum(row["id"] for row in data.iter_rows()) + int(weights.sum())})

    with tempfile.TemporaryDirectory() as folder:
        given = tune.with_parameters(summing, data=ray.data.range(50), weights=numpy.arange(1000))
        asked = tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}])
        return fit(tune.with_resources(given, asked), {}, folder)[0].metrics["sum"]


def actors_are_used_again() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        run = {"stop": {"training_iteration": 2}}
        results = fit(Told, {"rate": tune.grid_search([1, 2, 3, 4])}, folder, run, reuse_actors=True, max_concurrent_trials=1)
        return [len({result.metrics["process"] for result in results}), [result.metrics["score"] for result in results]]


class Told(Learner):
    """Says in which process it runs, and begins anew when it is used again."""

    def step(self) -> dict[str, Any]:
        return {**super().step(), "process": os.getpid()}

    def reset_config(self, config: dict[str, Any]) -> bool:
        self.count = 0
        return super().reset_config(config)
