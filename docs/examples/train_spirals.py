"""Trains a small network to tell two spirals apart, on two workers; kills one in the middle, and plots the loss.

Run it with `python docs/examples/train_spirals.py`: it needs PyTorch and no GPU, and writes `spirals.svg`.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import ray
import torch
from ray import train
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model


def spirals(count: int) -> torch.utils.data.TensorDataset:
    """Points on two spirals that wind around each other, and which of the two each is on."""
    generator = torch.Generator().manual_seed(1)
    turn = torch.rand(count, generator=generator).sqrt() * 3 * math.pi
    which = torch.randint(0, 2, (count,), generator=generator)
    angle = turn + which * math.pi
    points = torch.stack([turn * angle.cos(), turn * angle.sin()], 1) / 10
    return torch.utils.data.TensorDataset(points + 0.01 * torch.randn(count, 2, generator=generator), which)


def train_spirals(config: dict[str, Any]) -> None:
    """One worker: trains, and reports each epoch with a checkpoint."""
    torch.manual_seed(2)
    model = torch.nn.Sequential(
        torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first = 0
    if (checkpoint := train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state.pt"))
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
    model = prepare_model(model)
    loader = prepare_data_loader(torch.utils.data.DataLoader(spirals(2000), batch_size=50, shuffle=True))
    rank = train.get_context().get_world_rank()
    for epoch in range(first, config["epochs"]):
        loader.sampler.set_epoch(epoch)
        right = seen = 0
        total = 0.0
        for points, which in loader:
            found = model(points)
            loss = torch.nn.functional.cross_entropy(found, which)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(points)
            right += int((found.argmax(1) == which).sum())
            seen += len(points)
        with tempfile.TemporaryDirectory() as folder:
            own = None
            if rank == 0:
                state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
                torch.save(state, os.path.join(folder, "state.pt"))
                own = Checkpoint.from_directory(folder)
            train.report({"epoch": epoch, "loss": total / seen, "right": right / seen}, checkpoint=own)
        killed = Path(config["folder"]) / "killed"
        if rank == 1 and epoch == config["epochs"] // 2 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: str, epochs: int = 30) -> train.Result:
    """Trains in `folder`, and draws the loss."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    result = TorchTrainer(
        train_spirals,
        train_loop_config={"epochs": epochs, "folder": folder},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name="spirals",
            storage_path=folder,
            failure_config=FailureConfig(max_failures=1),
            checkpoint_config=CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="right"),
        ),
    ).fit()
    result.plot("loss", "right", path=os.path.join(folder, "spirals.svg"))
    return result


if __name__ == "__main__":
    ray.init(num_cpus=2)
    found = main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    print(f"{len(found.history)} epochs, {found.metrics['right']:.1%} right, loss drawn in {Path(found.path).parent}/spirals.svg")
