"""Real PyTorch on the CPU, with Gloo between the workers."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import networks
import pytest
import torch
from ray import train
from ray.train import DataConfig
from ray.train.torch import (
    TorchCheckpoint,
    TorchConfig,
    TorchTrainer,
    accelerate,
    backward,
    enable_reproducibility,
    get_device,
    get_devices,
    prepare_data_loader,
    prepare_model,
    prepare_optimizer,
)

STEPS = 12


@pytest.mark.parametrize("workers", [2, 4])
def test_many_workers_learn_what_one_process_learns(fit, workers: int) -> None:
    def function() -> list[list[float]]:
        context = train.get_context()
        model = prepare_model(networks.network())
        assert isinstance(model, torch.nn.parallel.DistributedDataParallel)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for number in range(STEPS):
            loss = networks.step(model, optimizer, number, context.get_world_rank(), context.get_world_size())
            train.report({"loss": loss})
        return networks.weights(model)

    result = fit(function, workers, trainer=TorchTrainer)
    assert networks.differ(result.return_value, networks.alone(STEPS)) < 1e-6
    assert len(result.history) == STEPS


def test_the_process_group_is_what_was_asked_for(fit) -> None:
    def function() -> list[Any]:
        distributed = torch.distributed
        rank = train.get_context().get_world_rank()
        summed = torch.tensor([float(rank)])
        distributed.all_reduce(summed)
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")
        variables = [os.environ[name] for name in names]
        assert os.environ["MASTER_ADDR"] and int(os.environ["MASTER_PORT"])
        return [distributed.get_backend(), float(summed), variables, str(get_device()), [str(one) for one in get_devices()]]

    result = fit(function, 3, trainer=TorchTrainer)
    assert result.return_value == ["gloo", 3.0, ["0", "3", "0", "3", "0"], "cpu", ["cpu"]]


def test_an_unknown_backend_is_an_error_that_says_so(fit) -> None:
    with pytest.raises(train.ControllerError, match="smoke"):
        fit(lambda: None, trainer=TorchTrainer, torch_config=TorchConfig(backend="smoke"))


def test_loaders_divide_and_shuffle(fit) -> None:
    def function() -> tuple[Any, ...]:
        values = torch.utils.data.TensorDataset(torch.arange(12))
        plain = prepare_data_loader(torch.utils.data.DataLoader(values, batch_size=2))
        shuffled = prepare_data_loader(torch.utils.data.DataLoader(values, batch_size=2, shuffle=True))
        assert isinstance(shuffled.sampler, torch.utils.data.DistributedSampler)
        assert shuffled.sampler.shuffle and not plain.sampler.shuffle
        seen = [int(value) for (batch,) in plain for value in batch]
        everybody: list[Any] = [None, None]
        torch.distributed.all_gather_object(everybody, [int(value) for (batch,) in shuffled for value in batch])
        return seen, sorted(everybody[0] + everybody[1])

    seen, shuffled = fit(function, trainer=TorchTrainer).return_value
    assert seen == [0, 2, 4, 6, 8, 10]
    assert shuffled == list(range(12))


def test_mixed_precision(fit) -> None:
    def function() -> list[Any]:
        accelerate(amp=True)
        seen: list[Any] = []
        inner = torch.nn.Linear(4, 2)
        inner.register_forward_hook(lambda module, given, found: seen.append(str(found.dtype)))
        model = prepare_model(torch.nn.Sequential(inner))
        optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        found = model(torch.ones(3, 4))
        before = networks.weights(model)
        backward(found.sum())
        optimizer.step()
        return [seen, str(found.dtype), networks.differ(before, networks.weights(model)) > 0]

    assert fit(function, trainer=TorchTrainer).return_value == [["torch.bfloat16"], "torch.float32", True]


def test_losses_are_scaled_on_gpus(fit) -> None:
    """With a scaler that PyTorch has for the CPU too."""

    def function() -> list[Any]:
        from oxiray.train.torch import _loop

        _loop._accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        model = prepare_model(torch.nn.Linear(1, 1, bias=False), parallel_strategy=None)
        optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.5))
        before = model.weight.item()
        backward(model(torch.ones(1, 1)).sum())
        scaled = model.weight.grad.item()
        optimizer.step()
        return [scaled, before - model.weight.item(), optimizer.param_groups[0]["lr"]]

    scaled, stepped, rate = fit(function, 1, trainer=TorchTrainer).return_value
    assert (scaled, rate) == (8.0, 0.5)
    assert stepped == pytest.approx(0.5), "what was scaled for the gradients is not in the step"


def test_runs_can_be_repeated(fit) -> None:
    def function() -> list[Any]:
        import random

        import numpy

        enable_reproducibility(7)
        drawn = [torch.rand(1).item(), random.random(), float(numpy.random.random())]
        return [drawn, torch.are_deterministic_algorithms_enabled(), os.environ["CUBLAS_WORKSPACE_CONFIG"]]

    first, second = (fit(function, 1, trainer=TorchTrainer, name=name).return_value for name in ("first", "second"))
    assert first == second and first[1:] == [True, ":4096:8"]


def test_the_loop_of_the_acceptance_on_gpus(fit) -> None:
    """What `scripts/gpu-acceptance` trains on a GPU, here on the CPU."""
    script = Path(__file__).resolve().parent.parent.parent / "scripts" / "gpu-acceptance"
    names: dict[str, Any] = {"__name__": "acceptance", "__file__": str(script)}
    exec(compile(script.read_text(), script, "exec"), names)
    found = fit(names["train_on_gpu"], trainer=TorchTrainer).return_value
    assert found == {"sum": 2.0, "backend": "gloo", "ranks": [("cpu", []), ("cpu", [])], "learns": True}


def test_what_prepare_model_refuses(fit) -> None:
    def function() -> None:
        with pytest.raises(ValueError, match="'ddp', 'fsdp', or None"):
            prepare_model(networks.network(), parallel_strategy="both")
        assert isinstance(prepare_model(networks.network(), parallel_strategy=None), torch.nn.Sequential)

    fit(function, trainer=TorchTrainer)


def test_tensors_are_refused(fit) -> None:
    def function() -> None:
        with pytest.raises(ValueError, match="Torch tensors as metrics"):
            train.report({"loss": [torch.ones(1)]})

    fit(function, 1, trainer=TorchTrainer)
    with pytest.raises(train.TrainingFailedError, match="Torch tensors as what the training function returns"):
        fit(lambda: torch.ones(1), 1, trainer=TorchTrainer)


def test_processes_of_torchrun_train_without_a_cluster(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import os, sys
            sys.path.insert(0, {str(Path(__file__).parent)!r})
            import networks, ray, torch
            from ray import train
            from ray.train.torch import TorchTrainer, prepare_model

            def function():
                context = train.get_context()
                model = prepare_model(networks.network())
                optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
                for number in range({STEPS}):
                    networks.step(model, optimizer, number, context.get_world_rank(), context.get_world_size())
                train.report({{"place": [context.get_world_size(), context.get_local_rank(), context.get_node_rank()]}})
                return networks.differ(networks.weights(model), networks.alone({STEPS})), list(train.get_dataset_shard("train"))

            scaling = train.ScalingConfig(num_workers=0)
            result = TorchTrainer(function, scaling_config=scaling, datasets={{"train": range(4)}}).fit()
            difference, part = result.return_value
            words = [*result.metrics["place"], difference < 1e-6, part, ray.is_initialized()]
            # At once: the two write to one pipe.
            os.write(1, (" ".join(map(str, words)) + "\\n").encode())
            """
        )
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["2 0 0 True [0, 2] False", "2 1 0 True [1, 3] False"]


def test_a_model_is_a_checkpoint(fit) -> None:
    def function() -> None:
        train.report({}, checkpoint=TorchCheckpoint.from_state_dict(networks.network().state_dict()))

    result = fit(function, 1, trainer=TorchTrainer)
    fresh = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    loaded = TorchCheckpoint(result.checkpoint.path).get_model(fresh)
    assert networks.differ(networks.weights(loaded), networks.weights(networks.network())) == 0


def test_a_dataset_of_torch_is_divided(fit) -> None:
    def function() -> tuple[int, int]:
        return len(train.get_dataset_shard("train")), sum(int(value) for (value,) in train.get_dataset_shard("train"))

    data = torch.utils.data.TensorDataset(torch.arange(10))
    assert fit(function, trainer=TorchTrainer, datasets={"train": data}, dataset_config=DataConfig()).return_value == (
        5, 20,
    )  # fmt: skip


def test_workers_are_forked_with_torch(fit) -> None:
    """The template has imported PyTorch: the workers of a group share what it loaded."""

    class Seen(train.UserCallback):
        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            parents.extend(one["parent"] for one in metrics)
            identities.extend(one["identity"] for one in metrics)

    def function() -> None:
        import sys

        # Forked processes have the module at the place where their parent put it.
        train.report({"parent": os.getppid(), "identity": id(sys.modules["torch._dynamo"])})

    parents: list[int] = []
    identities: list[int] = []
    fit(function, 2, trainer=TorchTrainer, callbacks=[Seen()])
    assert len(set(parents)) == 1
    assert len(set(identities)) == 1
