"""Seed 004: the device that a worker is to use.

ENVIRONMENT
    OXIRAY_HOST_ROOT=tests/fixtures/hosts/nvidia-h100x8

EXPECTED
    (RayTrainWorker pid=1) init_process_group(nccl, rank 0 of 1)
    (RayTrainWorker pid=1) set_device(cuda:0) -> physical GPU 0
"""

import torch
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer, get_device


def train_func():
    assert torch.cuda.is_available()

    device = get_device()
    assert device == torch.device("cuda:0")

trainer = TorchTrainer(
    train_func,
    scaling_config=ScalingConfig(
        num_workers=1,
        use_gpu=True
    )
)
trainer.fit()
