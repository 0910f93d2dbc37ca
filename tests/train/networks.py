"""A small network and its data, trained the same way by one process and by many."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import torch
from ray import train
from ray.train import Checkpoint
from ray.train.torch import prepare_model

ROWS, BATCH = 64, 16


def network() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(ROWS, 8, generator=generator)
    return inputs, torch.stack([inputs.sum(1), inputs.prod(1)], 1)


def step(model: Any, optimizer: Any, number: int, rank: int = 0, size: int = 1) -> float:
    """One step on batch `number`, of which each rank has its part."""
    inputs, targets = data()
    rows = torch.arange(BATCH) + number * BATCH % ROWS
    own = rows[rank::size]
    loss = torch.nn.functional.mse_loss(model(inputs[own]), targets[own])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def weights(model: torch.nn.Module) -> list[list[float]]:
    inner = getattr(model, "module", model)
    return [value.flatten().tolist() for value in inner.state_dict().values()]


def alone(steps: int) -> list[list[float]]:
    """The weights after so many steps of one process."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for number in range(steps):
        step(model, optimizer, number)
    return weights(model)


def differ(one: list[list[float]], other: list[list[float]]) -> float:
    return max(abs(a - b) for left, right in zip(one, other, strict=True) for a, b in zip(left, right, strict=True))


def train_with_checkpoints(config: dict[str, Any]) -> list[list[float]]:
    """Trains `steps` steps and reports each with a checkpoint; `disturb(rank, number)` is called before each."""
    context = train.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    first = 0
    if (begun := train.get_checkpoint()) is not None:
        with begun.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state.pt"))
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    model = prepare_model(model)
    for number in range(first, config["steps"]):
        if "disturb" in config:
            config["disturb"](rank, number)
        loss = step(model, optimizer, number, rank, size)
        with tempfile.TemporaryDirectory() as folder:
            if rank == 0:
                state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": number + 1}
                torch.save(state, os.path.join(folder, "state.pt"))
            own = Checkpoint.from_directory(folder) if rank == 0 else None
            train.report({"loss": loss, "step": number}, checkpoint=own)
    return weights(model)
