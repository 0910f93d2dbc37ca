"""Cases of datasets of Ray Data in training: each returns what JSON can hold. They run on Oxiray and on Ray alike."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
import ray.data
from ray import train
from ray.data import ExecutionOptions
from ray.train import DataConfig, FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
from ray.train.torch import TorchTrainer
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def tell(folder: str, value: Any) -> None:
    """What a rank has to say at the end of its function."""
    Path(folder, f"rank-{train.get_context().get_world_rank()}.json").write_text(json.dumps(value))


def told(
    function: Callable[[dict[str, Any]], Any], datasets: dict[str, Any], *, config: DataConfig | None = None, failures: int = 0,
    trainer: type = DataParallelTrainer, workers: int = 2,
) -> list[Any]:  # fmt: skip
    """Trains; returns what each rank returned, by rank."""

    def run(given: dict[str, Any]) -> None:
        tell(given["folder"], function(given))

    with tempfile.TemporaryDirectory() as folder:
        trainer(
            run,
            train_loop_config={"folder": folder},
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(name="run", storage_path=folder, failure_config=FailureConfig(max_failures=failures)),
            datasets=datasets,
            dataset_config=config,
        ).fit()
        return [json.loads(path.read_text()) for path in sorted(Path(folder).glob("rank-*.json"))]


def shard_sum(name: str = "train", column: str = "id") -> int:
    return sum(int(batch[column].sum()) for batch in train.get_dataset_shard(name).iter_batches(batch_size=16))


def split_sums() -> Any:
    def read(given: dict[str, Any]) -> Any:
        rows = [int(row["id"]) for row in train.get_dataset_shard("train").iter_rows()]
        return [len(rows), sum(rows), type(train.get_dataset_shard("train")).__name__]

    found = told(read, {"train": ray.data.range(1000, override_num_blocks=8)})
    return [[count for count, _, _ in found], sum(total for _, total, _ in found), [kind for _, _, kind in found]]


def not_split() -> Any:
    def read(given: dict[str, Any]) -> Any:
        return [shard_sum("train"), shard_sum("valid"), type(train.get_dataset_shard("valid")).__name__]

    datasets = {"train": ray.data.range(100, override_num_blocks=4), "valid": ray.data.range(30)}
    found = told(read, datasets, config=DataConfig(datasets_to_split=["train"]))
    return [sum(own for own, _, _ in found), [whole for _, whole, _ in found], [kind for _, _, kind in found]]


def uneven_sizes() -> Any:
    def read(given: dict[str, Any]) -> Any:
        return sum(len(batch["id"]) for batch in train.get_dataset_shard("train").iter_batches(batch_size=7))

    return told(read, {"train": ray.data.range(103, override_num_blocks=5)})


def several_epochs() -> Any:
    def read(given: dict[str, Any]) -> Any:
        return [shard_sum() for _ in range(3)]

    found = told(read, {"train": ray.data.range(200, override_num_blocks=4)})
    return [sum(sums) for sums in zip(*found, strict=True)]


def an_epoch_that_is_left() -> Any:
    def read(given: dict[str, Any]) -> Any:
        shard = train.get_dataset_shard("train")
        first = next(iter(shard.iter_batches(batch_size=5)))
        return [len(first["id"]), shard_sum()]

    found = told(read, {"train": ray.data.range(200, override_num_blocks=4)})
    return [[first for first, _ in found], sum(total for _, total in found)]


def torch_batches() -> Any:
    def read(given: dict[str, Any]) -> Any:
        shapes, total, devices, kinds = [], 0, set(), set()
        for batch in train.get_dataset_shard("train").iter_torch_batches(batch_size=20):
            shapes.append(list(batch["id"].shape))
            total += int(batch["id"].sum())
            devices.add(batch["id"].device.type)
            kinds.add(str(batch["id"].dtype))
        return [shapes, total, sorted(devices), sorted(kinds)]

    found = told(read, {"train": ray.data.range(100, override_num_blocks=4)}, trainer=TorchTrainer)
    return [[shapes for shapes, *_ in found], sum(total for _, total, *_ in found), [rest for _, _, *rest in found]]


def materialized() -> Any:
    def read(given: dict[str, Any]) -> Any:
        shard = train.get_dataset_shard("train")
        kept = shard.materialize()
        return [kept.count(), int(kept.sum("id")), shard.schema().names]

    found = told(read, {"train": ray.data.range(120, override_num_blocks=4)})
    return [[count for count, _, _ in found], sum(total for _, total, _ in found), [names for _, _, names in found]]


class EachItsOwn(DataConfig):
    """Gives each rank the rows whose number has its remainder, and notes how it was called."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder

    def configure(self, datasets: Any, world_size: int, worker_handles: Any, worker_node_ids: Any, **kwargs: Any) -> Any:
        note = [sorted(datasets), world_size, worker_handles, len(worker_node_ids), self._datasets_to_split, sorted(kwargs)]
        Path(self.folder, "-".join(datasets)).write_text(json.dumps(note))

        def own(rank: int) -> Callable[[dict[str, Any]], bool]:
            return lambda row: row["id"] % world_size == rank

        return [
            {name: data.filter(own(rank)).iterator() for name, data in datasets.items()} for rank in range(world_size)
        ]


def an_own_configuration() -> Any:
    def read(given: dict[str, Any]) -> Any:
        return [shard_sum("train"), shard_sum("valid")]

    with tempfile.TemporaryDirectory() as folder:
        datasets = {"train": ray.data.range(100), "valid": ray.data.range(10)}
        found = told(read, datasets, config=EachItsOwn(folder))
        return [found, [json.loads(path.read_text()) for path in sorted(Path(folder).iterdir())]]


def execution_options() -> Any:
    def read(given: dict[str, Any]) -> Any:
        options = {name: train.get_dataset_shard(name).get_context().execution_options for name in ("train", "valid", "other")}
        return [[one.preserve_order, one.verbose_progress] for one in options.values()]

    before = ray.data.DataContext.get_current().execution_options.preserve_order
    datasets = {name: ray.data.range(10) for name in ("train", "valid", "other")}
    options = {"train": ExecutionOptions(preserve_order=True), "valid": ExecutionOptions(verbose_progress=False)}
    config = DataConfig(["train"], options)
    found = told(read, datasets, config=config)
    after = [datasets["train"].context.execution_options.preserve_order, ray.data.DataContext.get_current().execution_options.preserve_order]
    return [found, before, after]


def the_context_of_the_driver() -> Any:
    def read(given: dict[str, Any]) -> Any:
        return ray.data.DataContext.get_current().get_config("said", "nothing")

    context = ray.data.DataContext.get_current()
    context.set_config("said", "in the driver")
    try:
        return told(read, {"train": ray.data.range(10)})
    finally:
        context.remove_config("said")


def made_by_a_function() -> Any:
    def read(given: dict[str, Any]) -> Any:
        return shard_sum()

    return sum(told(read, {"train": lambda: ray.data.range(100, override_num_blocks=4)}))


class AddTen:
    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"] + 10}


def preprocessed_by_actors() -> Any:
    def read(given: dict[str, Any]) -> Any:
        return [shard_sum(), shard_sum()]

    found = told(read, {"train": ray.data.range(200, override_num_blocks=4).map_batches(AddTen, concurrency=1)})
    return [sum(sums) for sums in zip(*found, strict=True)]


def reserved_for_training() -> Any:
    """How many CPUs Data counts on for itself, and how many it knows to be the workers'."""

    def reserved(coordinator: Any) -> Any:
        cpus = {"train": 0.0, "data": 0.0}
        for who, request in coordinator._ongoing_reqs.items():
            whose = "train" if who.startswith("train-") else "data"
            cpus[whose] += sum(found.get("CPU", 0) for found in request.reserved_resources.values())
        return [cpus["train"], cpus["data"]]

    def read(given: dict[str, Any]) -> Any:
        batches = iter(train.get_dataset_shard("train").iter_batches(batch_size=5))
        next(batches)
        coordinator = ray.get_actor("AutoscalingCoordinator", "AutoscalingCoordinator")
        found = ray.get(coordinator.__ray_call__.remote(reserved))
        return [found, sum(1 for _ in batches) > 0]

    found = told(read, {"train": ray.data.range(400, override_num_blocks=4)}, workers=1)
    coordinator = ray.get_actor("AutoscalingCoordinator", "AutoscalingCoordinator")
    return [found, ray.get(coordinator.__ray_call__.remote(reserved))[0]]


def restarted_after_a_failure() -> Any:
    def read(given: dict[str, Any]) -> Any:
        mark = Path(given["folder"], "died")
        total = 0
        for count, batch in enumerate(train.get_dataset_shard("train").iter_batches(batch_size=5)):
            total += int(batch["id"].sum())
            if count == 2 and train.get_context().get_world_rank() == 1 and not mark.exists():
                mark.touch()
                os._exit(1)
        return [total, mark.exists()]

    found = told(read, {"train": ray.data.range(400, override_num_blocks=8)}, failures=1)
    return [sum(total for total, _ in found), [died for _, died in found]]


def failed(function: Callable[[dict[str, Any]], Any], datasets: dict[str, Any], words: str, config: DataConfig | None = None) -> Any:
    """The kind of the error that training ends with, and whether it and the ranks' errors have these words."""
    try:
        told(function, datasets, config=config)
    except TrainingFailedError as error:
        ranks = getattr(error, "worker_failures", {})
        return [type(error).__name__, words in str(error), bool(ranks) and all(words in str(one) for one in ranks.values())]
    return None


def fail_at_row_7(row: dict[str, Any]) -> dict[str, Any]:
    if row["id"] == 7:
        raise ValueError("row 7 is wrong")
    return row


def an_error_in_a_map() -> Any:
    data = ray.data.range(20, override_num_blocks=2).map(fail_at_row_7)
    # Ray's own text is cut where it becomes long.
    kind, _, is_told_of_ranks = failed(lambda given: shard_sum(), {"train": data}, "row 7 is wrong")
    return [kind, is_told_of_ranks]


class Refusing(DataConfig):
    def configure(self, *args: Any, **kwargs: Any) -> Any:
        raise ValueError("nothing can be divided so")


def an_error_in_a_configuration() -> Any:
    found = failed(lambda given: shard_sum(), {"train": ray.data.range(20)}, "nothing can be divided so", Refusing())
    return found[:2]


def an_error_of_the_function_that_makes_one() -> Any:
    def make() -> Any:
        raise ValueError("there is no such file")

    return failed(lambda given: shard_sum(), {"train": make}, "there is no such file")


def in_the_driver() -> Any:
    def read(given: dict[str, Any]) -> Any:
        return [shard_sum(), [len(batch["id"]) for batch in train.get_dataset_shard("train").iter_torch_batches(batch_size=8)]]

    return told(read, {"train": ray.data.range(20)}, trainer=TorchTrainer, workers=0)


def the_program_of_the_documentation() -> Any:
    """The program of docs/train.md with datasets of Ray Data, run by what `ray` is here; returns whether it prints what is said."""
    section = (Path(__file__).parents[2] / "docs" / "train.md").read_text().partition("\n## Data\n")[2]
    program, said = (section.partition(f"```{kind}\n")[2].partition("```")[0] for kind in ("python", "text"))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "docs/train.md", "exec"), {"__name__": "documented"})
    return [said, printed.getvalue() == said]
