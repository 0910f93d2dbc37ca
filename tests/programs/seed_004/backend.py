"""Seed 004: Gloo between workers with GPUs, since TorchConfig says so.

ENVIRONMENT
    OXIRAY_HOST_ROOT=tests/fixtures/hosts/nvidia-h100x8

EXPECTED
    (RayTrainWorker pid=1) init_process_group(gloo, rank 0 of 2)
    (RayTrainWorker pid=1) set_device(cuda:0) -> physical GPU 0
    (RayTrainWorker pid=1) gloo
    (RayTrainWorker pid=2) init_process_group(gloo, rank 1 of 2)
    (RayTrainWorker pid=2) set_device(cuda:1) -> physical GPU 1
    (RayTrainWorker pid=2) gloo
"""

import torch
from ray.train import ScalingConfig


def train_func():
    print(torch.distributed.get_backend())


num_training_workers = 2

from ray.train.torch import TorchConfig, TorchTrainer

trainer = TorchTrainer(
    train_func,
    scaling_config=ScalingConfig(
        num_workers=num_training_workers,
        use_gpu=True, # Defaults to NCCL
    ),
    torch_config=TorchConfig(backend="gloo"),
)
trainer.fit()
