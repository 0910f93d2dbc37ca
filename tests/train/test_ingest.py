"""Datasets of Ray Data in a run, with a class that stands in for Ray Data's: what is asked of it, and when.

The library itself is tried in tests/libraries.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import train
from ray.train import Checkpoint, ControllerError, DataConfig, ScalingConfig, WorkerGroupError


class Dataset:
    """Is recognized by its name and its module, and stays in the driver."""

    def __init__(self, rows: list[int]) -> None:
        self.rows = rows
        self.is_copy = False

    def copy(self, dataset: Any, _deep_copy: bool = False) -> Any:
        copied = type(self)(list(dataset.rows))
        copied.is_copy = True
        return copied


Dataset.__module__ = "ray.data.dataset"


class Dividing(DataConfig):
    """Divides by position, and notes each call in a file; `parts` makes a part of what it holds."""

    def __init__(self, noted: Path, parts: Any = list) -> None:
        super().__init__()
        self.noted = noted
        self.parts = parts
        self.calls = 0

    def configure(self, datasets: Any, world_size: int, worker_handles: Any, worker_node_ids: Any, **kwargs: Any) -> Any:
        self.calls += 1
        ((name, data),) = datasets.items()
        with self.noted.open("a") as file:
            print(name, world_size, worker_handles, len(worker_node_ids), self.calls, data.is_copy, file=file)
        return [{name: self.parts(data.rows[rank::world_size])} for rank in range(world_size)]

    def calls_noted(self) -> list[str]:
        return self.noted.read_text().splitlines()


def test_a_dataset_is_divided_once_when_a_rank_asks_for_it(fit, tmp_path: Path) -> None:
    def function():
        first = train.get_dataset_shard("train")
        assert train.get_dataset_shard() is first, "it is asked for once"
        with pytest.raises(KeyError, match="given: plain, train, unread"):
            train.get_dataset_shard("test")
        ranks = train.collective.broadcast_from_rank_zero(first)
        return ranks, sorted([*train.get_dataset_shard("plain")])

    config = Dividing(tmp_path / "calls")
    datasets = {"train": Dataset([1, 2, 3, 4]), "unread": Dataset([5]), "plain": [6, 7, 8]}
    result = fit(function, 2, datasets=datasets, dataset_config=config)
    assert result.return_value == ([1, 3], [6, 8])
    assert config.calls_noted() == ["train 2 None 2 1 True"]
    assert config.calls == 0, "the program's own object is left alone"


def test_a_new_group_divides_anew(fit, tmp_path: Path) -> None:
    def function(config):
        rows = train.get_dataset_shard("train")
        if train.get_context().get_world_rank() == 1 and not Path(config["mark"]).exists():
            Path(config["mark"]).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        train.collective.barrier()
        return rows

    config = Dividing(tmp_path / "calls")
    result = fit(
        function, 2, failures=1, config={"mark": str(tmp_path / "mark")}, datasets={"train": Dataset([1, 2, 3])}, dataset_config=config
    )  # fmt: skip
    assert result.return_value == [1, 3]
    assert config.calls_noted() == ["train 2 None 2 1 True"] * 2, "each group has its own copy of the configuration"


def test_a_group_that_grows_divides_for_its_new_size(fit, tmp_path: Path) -> None:
    @ray.remote(num_cpus=4)
    class Holder:
        def ready(self) -> None:
            pass

    class GivingRoom(train.UserCallback):
        def after_report(self, run_context: Any, metrics: Any, checkpoint: Any) -> None:
            ray.kill(holder)

    def function(config):
        context = train.get_context()
        rows = train.get_dataset_shard("train")
        Path(config["folder"], f"{context.get_world_size()}-{context.get_world_rank()}").write_text(str(rows))
        while context.get_world_size() == 1:
            train.report({}, Checkpoint.from_directory(config["empty"]))

    empty = tmp_path / "empty"
    empty.mkdir()
    parts = tmp_path / "parts"
    parts.mkdir()
    holder = Holder.remote()
    ray.get(holder.ready.remote())
    scaling = ScalingConfig(num_workers=(1, 2), resources_per_worker={"CPU": 4}, elastic_resize_monitor_interval_s=0.1)
    given = {"empty": str(empty), "folder": str(parts)}
    config = Dividing(tmp_path / "calls")
    fit(function, scaling=scaling, config=given, callbacks=[GivingRoom()], datasets={"train": Dataset([1, 2, 3])}, dataset_config=config)
    assert {path.name: path.read_text() for path in parts.iterdir()} == {"1-0": "[1, 2, 3]", "2-0": "[1, 3]", "2-1": "[2]"}
    assert config.calls_noted() == ["train 1 None 1 1 True", "train 2 None 2 1 True"]


@ray.remote(num_cpus=0)
class Coordinator:
    def __init__(self, stopped: Path) -> None:
        self.stopped = stopped

    def shutdown_executor(self) -> None:
        self.stopped.touch()


class Part:
    """A part with an actor behind it, as those have that Ray Data divides."""

    def __init__(self, actor: Any) -> None:
        self._coord_actor = actor


def test_the_actors_behind_parts_end_with_their_group(fit, tmp_path: Path) -> None:
    made = [Coordinator.remote(tmp_path / f"stopped-{number}") for number in range(2)]

    class OfTheAttempt(DataConfig):
        def configure(self, datasets: Any, world_size: int, worker_handles: Any, worker_node_ids: Any, **kwargs: Any) -> Any:
            actor = made[len(list(tmp_path.glob("stopped-*")))]
            return [{"train": Part(actor)} for _ in range(world_size)]

    def function(config):
        train.get_dataset_shard("train")
        train.collective.barrier()
        if not Path(config["mark"]).exists():
            Path(config["mark"]).touch()
            raise RuntimeError("once")

    fit(function, 1, failures=1, config={"mark": str(tmp_path / "mark")}, datasets={"train": Dataset([])}, dataset_config=OfTheAttempt())
    assert sorted(path.name for path in tmp_path.glob("stopped-*")) == ["stopped-0", "stopped-1"], "what they ran was ended first"
    for actor in made:
        with pytest.raises(ray.exceptions.RayActorError):
            ray.get(actor.shutdown_executor.remote())


class Broken(DataConfig):
    def __init__(self, given: Any) -> None:
        super().__init__()
        self.given = given

    def configure(self, *args: Any, **kwargs: Any) -> Any:
        if callable(self.given):
            raise self.given()
        return self.given


class NotPicklable(Exception):
    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


@pytest.mark.parametrize(
    "given, words",
    [
        (lambda: ValueError("nothing to divide"), "ValueError: nothing to divide"),
        (lambda: NotPicklable(1, 2), "the dataset 'train' could not be divided: NotPicklable: 1 and 2"),
        ([{"train": [1]}], "returned a list of 1 for the dataset 'train': it must return a list of 2 dictionaries"),
        ([{"train": [1]}, {}], "that hold a DataIterator as 'train'"),
        (None, "returned a NoneType"),
    ],
)
@pytest.mark.usefixtures("all_are_waited_for")
def test_what_configure_does_wrong_is_told_to_each_rank(fit, given: Any, words: str) -> None:
    def function():
        try:
            train.get_dataset_shard("train")
        finally:
            train.collective.barrier()

    with pytest.raises(WorkerGroupError) as raised:
        fit(function, 2, datasets={"train": Dataset([])}, dataset_config=Broken(given))
    assert words in str(raised.value)
    assert sorted(raised.value.worker_failures) == [0, 1]


@pytest.mark.parametrize(
    "make, words",
    [(lambda: [1, 2], "is a function that returned a list: have it return a ray.data.Dataset"), (lambda: 1 / 0, "division by zero")],
)
def test_a_function_that_makes_no_dataset_is_refused(fit, make: Any, words: str) -> None:
    with pytest.raises(ControllerError, match=words):
        fit(lambda: None, 1, datasets={"train": make})


def test_a_function_that_makes_a_dataset_is_called_for_each_group(fit, tmp_path: Path) -> None:
    def make() -> Any:
        with (tmp_path / "made").open("a") as file:
            print("made", file=file)
        return Dataset([1, 2])

    def function(config):
        rows = train.get_dataset_shard("train")
        if not Path(config["mark"]).exists():
            Path(config["mark"]).touch()
            raise RuntimeError("once")
        return rows

    config = {"mark": str(tmp_path / "mark")}
    result = fit(function, 1, failures=1, config=config, datasets={"train": make}, dataset_config=Dividing(tmp_path / "calls"))
    assert result.return_value == [1, 2]
    assert (tmp_path / "made").read_text() == "made\n" * 2


def test_in_the_driver_the_dataset_is_given_as_it_is(fit) -> None:
    data = Dataset([1])
    assert fit(lambda: train.get_dataset_shard("train") is data, 0, datasets={"train": data}).return_value is True


def test_without_the_library_the_default_options_say_what_to_install() -> None:
    with pytest.raises(ImportError, match='oxiray ray install "data"'):
        DataConfig.default_ingest_options()
