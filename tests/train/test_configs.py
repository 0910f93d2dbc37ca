"""Each rule of the configurations: what it refuses, and that the text names the field and the way out."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import pytest
from ray import train
from ray.train import CheckpointConfig, DataConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


#: Two slices of two hosts.
TPU = {"num_workers": 4, "use_tpu": True, "topology": "2x2x2", "accelerator_type": "TPU-V4"}


@pytest.mark.parametrize(
    ("fields", "kind", "says"),
    [
        ({"num_workers": -1}, ValueError, "cannot be negative"),
        ({"num_workers": "2"}, ValueError, "must be an int or a tuple of two ints"),
        ({"num_workers": (1, 2, 3)}, ValueError, "must be an int or a tuple of two ints"),
        ({"num_workers": True}, ValueError, "must be an int or a tuple of two ints"),
        ({"num_workers": (4, 2)}, ValueError, "min_workers=4 must be <= max_workers=2"),
        ({"num_workers": (0, 2)}, ValueError, "at least one worker"),
        ({"resources_per_worker": {"GPU": 1}}, ValueError, "Either set `use_gpu` to True or remove `GPU`"),
        ({"resources_per_worker": {"TPU": 1}}, ValueError, "Either set `use_tpu` to True or remove `TPU`"),
        ({"resources_per_worker": {"CPU": -1}}, ValueError, "a number from 0 on"),
        ({"resources_per_worker": {"CPU": "2"}}, ValueError, "a number from 0 on"),
        ({"resources_per_worker": ["CPU"]}, ValueError, "must be a dictionary"),
        ({"use_gpu": True, "use_tpu": True}, ValueError, "one kind of device"),
        ({"use_tpu": True, "num_workers": 2}, ValueError, "needs `topology` and `accelerator_type`"),
        ({"use_tpu": True, "resources_per_worker": {"TPU": 0}}, ValueError, "remove it, or give at least 1"),
        (TPU | {"label_selector": {"a": "b"}}, ValueError, "the topology decides on the machines"),
        (TPU | {"num_workers": 3}, ValueError, r"`num_workers` \(3\) must be a multiple of 2"),
        (TPU | {"num_workers": (1, 4)}, ValueError, r"`min_workers` \(1\) must be a multiple of 2"),
        (TPU | {"accelerator_type": "H100"}, ValueError, "must be one of TPU-V2, TPU-V3, TPU-V4"),
        (TPU | {"topology": "2x2y2"}, ValueError, "numbers of chips along each side"),
        (TPU | {"resources_per_worker": {"TPU": 3}}, ValueError, "do not divide the 8 of a slice"),
        ({"num_workers": 2, "label_selector": [{"a": "b"}]}, ValueError, "give one for each worker"),
        ({"elastic_resize_monitor_interval_s": -1}, ValueError, "must be non-negative"),
        ({"trainer_resources": {"CPU": 1}}, DeprecationWarning, "Leave it out"),
    ],
)
def test_scaling_refuses(fields: dict[str, Any], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        ScalingConfig(**fields)


@pytest.mark.parametrize(
    ("fields", "each"),
    [
        ({}, {"CPU": 1}),
        ({"use_gpu": True}, {"GPU": 1}),
        ({"use_gpu": True, "resources_per_worker": {"CPU": 4}}, {"CPU": 4, "GPU": 1}),
        ({"use_gpu": True, "resources_per_worker": {"GPU": 0}}, {"GPU": 1}),
        ({"use_gpu": True, "accelerator_type": "A100"}, {"GPU": 1, "accelerator_type:A100": 0.001}),
        ({"resources_per_worker": {"CPU": 0}}, {}),
        ({"use_tpu": True}, {"TPU": 1}),
        (TPU, {"CPU": 1, "TPU": 4, "accelerator_type:TPU-V4": 0.001}),
        (TPU | {"num_workers": 8, "resources_per_worker": {"TPU": 2}}, {"TPU": 2, "accelerator_type:TPU-V4": 0.001}),
        (
            {"use_tpu": True, "topology": "2x4", "accelerator_type": "v5litepod"},
            {"CPU": 1, "TPU": 8, "accelerator_type:TPU-V5LITEPOD": 0.001},
        ),
        ({"num_workers": 4, "resources_per_worker": {"CPU": 2, "disk": 1}}, {"CPU": 2, "disk": 1}),
    ],
)
def test_what_each_worker_is_given(fields: dict[str, Any], each: dict[str, float]) -> None:
    config = ScalingConfig(**fields)
    assert config._resources_per_worker_not_none == each
    assert config.total_resources == {name: amount * config.max_workers for name, amount in each.items()}


def test_trainer_resources_of_zero_are_deprecated_and_accepted() -> None:
    with pytest.warns(DeprecationWarning, match="Leave it out"):
        config = ScalingConfig(num_workers=4, resources_per_worker={"CPU": 2}, trainer_resources={"CPU": 0})
    assert config.total_resources == {"CPU": 8}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ScalingConfig(num_workers=4)


def test_scaling_knows_its_range() -> None:
    elastic = ScalingConfig(num_workers=(2, 4))
    assert (elastic.elasticity_enabled, elastic.min_workers, elastic.max_workers) == (True, 2, 4)
    assert pickle.loads(pickle.dumps(elastic)) == elastic
    assert not ScalingConfig(num_workers=3).elasticity_enabled


@pytest.mark.parametrize(
    ("make", "kind", "says"),
    [
        (lambda: FailureConfig(max_failures=-2), ValueError, "max_failures=-2"),
        (lambda: FailureConfig(hang_timeout_s=-1), ValueError, "hang_timeout_s"),
        (lambda: FailureConfig(fail_fast=True), DeprecationWarning, "fail_fast"),
        (lambda: CheckpointConfig(num_to_keep=0), ValueError, "integer >= 1"),
        (lambda: CheckpointConfig(checkpoint_score_order="best"), ValueError, "'max' or 'min'"),
        (lambda: CheckpointConfig(checkpoint_frequency=1), DeprecationWarning, "checkpoint_frequency"),
        (lambda: RunConfig(name="a/../b"), ValueError, "without `.` or `..`"),
        (lambda: RunConfig(name="/a"), ValueError, "below storage_path"),
        (lambda: ScalingConfig(label_selector="zone=a"), ValueError, "must be a dictionary"),
        (lambda: ScalingConfig(label_selector={"zone": 3}), ValueError, "must be a string"),
        (lambda: ScalingConfig(label_selector={"zone": "in(a"}), ValueError, "one of `v`"),
        (lambda: RunConfig(verbose=1), DeprecationWarning, "verbose"),
        (lambda: RunConfig(callbacks=[object()]), ValueError, "derive its class"),
        (lambda: RunConfig(failure_config=CheckpointConfig()), ValueError, "Invalid `FailureConfig` type"),
        (lambda: train.LoggingConfig(log_level="LOUD"), ValueError, "log_level"),
        (lambda: DataConfig(datasets_to_split="some"), TypeError, "datasets_to_split"),
        (lambda: TorchConfig(init_method="file"), ValueError, "init_method"),
        (lambda: TorchConfig(timeout_s=0), ValueError, "timeout_s"),
        (lambda: DataParallelTrainer(3), ValueError, "must be a function"),
        (lambda: DataParallelTrainer(print, datasets={"train": 3}), ValueError, "cannot be iterated over"),
        (lambda: DataParallelTrainer(print, datasets={"train": iter([])}), ValueError, "read twice"),
        (lambda: DataParallelTrainer(print, scaling_config={}), ValueError, "scaling_config takes"),
        (lambda: DataParallelTrainer(print, resume_from_checkpoint=1), DeprecationWarning, "same name"),
        (lambda: TorchTrainer(print, torch_config="gloo"), ValueError, "TorchConfig"),
        (lambda: DataParallelTrainer.restore("/tmp"), DeprecationWarning, "same RunConfig"),
        (lambda: DataParallelTrainer(lambda a, b: None).fit(), ValueError, "accepts 2 required"),
    ],
)
def test_other_configurations_refuse(make: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        make()


def test_what_is_taken_as_ray_takes_it(fit) -> None:
    assert train.LoggingConfig(log_level="debug").log_level == "DEBUG"
    result = fit(lambda: train.report({"loss": 1}), 1, name="group/run")
    assert result.path.endswith("/runs/group/run") and train.Result.from_path(result.path).metrics == {"loss": 1}


def test_the_backend_follows_the_devices() -> None:
    assert TorchTrainer(print, scaling_config=ScalingConfig(use_gpu=True)).backend_config.backend == "nccl"
    assert TorchTrainer(print).backend_config.backend == "gloo"
    chosen = TorchTrainer(print, scaling_config=ScalingConfig(use_gpu=True), torch_config=TorchConfig(backend="gloo"))
    assert chosen.backend_config.backend == "gloo"


@pytest.mark.parametrize("call", [lambda: train.report({}), train.get_context, train.get_checkpoint])
def test_what_is_a_workers_is_refused_in_the_driver(call: Any) -> None:
    with pytest.raises(RuntimeError, match="cannot be used outside of a Ray Train training function"):
        call()
