"""Models of which each worker holds a part: FSDP as `prepare_model` makes it, and as a program makes it itself."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import networks
import torch
from ray import train
from ray.train import Checkpoint
from ray.train.torch import TorchTrainer, prepare_model
from torch.distributed import checkpoint as sharded_checkpoint
from torch.distributed.checkpoint import state_dict as sharded_state
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

STEPS = 6


def test_a_wrapped_model_learns_what_one_process_learns(fit) -> None:
    def function() -> tuple[list[list[float]], int]:
        context = train.get_context()
        model = prepare_model(networks.network(), parallel_strategy="fsdp", parallel_strategy_kwargs={"use_orig_params": True})
        assert isinstance(model, FullyShardedDataParallel)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for number in range(STEPS):
            loss = networks.step(model, optimizer, number, context.get_world_rank(), context.get_world_size())
            train.report({"loss": loss})
        held = sum(parameter.numel() for parameter in model.parameters())
        with FullyShardedDataParallel.summon_full_params(model):
            return networks.weights(model), held

    learned, held = fit(function, trainer=TorchTrainer).return_value
    alone = networks.alone(STEPS)
    assert networks.differ(learned, alone) < 1e-6
    assert held <= -(-sum(len(values) for values in alone) // 2), "each worker holds half of the parameters"


def train_in_shards(config: dict[str, Any]) -> list[list[float]]:
    """Trains with a checkpoint at each step, of which each rank writes the part that it holds."""
    rank, size = train.get_context().get_world_rank(), train.get_context().get_world_size()
    model = networks.network()
    for layer in (*model, model):
        fully_shard(layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    first = 0
    if (begun := train.get_checkpoint()) is not None:
        first = begun.get_metadata()["step"] + 1
        own, of_optimizer = sharded_state.get_state_dict(model, optimizer)
        state = {"model": own, "optimizer": of_optimizer}
        sharded_checkpoint.load(state, checkpoint_id=begun.path)
        sharded_state.set_state_dict(
            model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
    for number in range(first, config["steps"]):
        networks.step(model, optimizer, number, rank, size)
        with tempfile.TemporaryDirectory() as folder:
            own, of_optimizer = sharded_state.get_state_dict(model, optimizer)
            sharded_checkpoint.save({"model": own, "optimizer": of_optimizer}, checkpoint_id=folder)
            checkpoint = Checkpoint.from_directory(folder)
            if rank == 0:
                checkpoint.set_metadata({"step": number})
            if (rank, number) == config.get("killed") and begun is None:
                os.kill(os.getpid(), signal.SIGKILL)
            train.report({"step": number}, checkpoint=checkpoint)
    return [value.full_tensor().flatten().tolist() for value in model.state_dict().values()]


def test_a_checkpoint_in_parts_brings_back_a_model_in_parts(fit) -> None:
    config = {"steps": STEPS, "killed": (1, 3)}
    result = fit(train_in_shards, trainer=TorchTrainer, config=config, failures=1)
    assert networks.differ(result.return_value, networks.alone(STEPS)) < 1e-6
    assert [row["step"] for row in result.history] == list(range(STEPS))
    parts = [name for name in os.listdir(Path(result.checkpoint.path)) if name.endswith(".distcp")]
    assert len(parts) == 2, "each rank's part is in the one folder"
    # Another run may have another number of workers: the parts are divided anew.
    more = fit(train_in_shards, 4, trainer=TorchTrainer, config={"steps": STEPS + 2})
    assert [row["step"] for row in more.history] == list(range(STEPS + 2))
    assert networks.differ(more.return_value, networks.alone(STEPS + 2)) < 1e-6
