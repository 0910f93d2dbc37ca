"""Seed 004: eight workers of half a GPU each share four devices, two by two.

ENVIRONMENT
    OXIRAY_HOST_ROOT=tests/fixtures/hosts/nvidia-h100x8

EXPECTED
    rank 0 uses cuda:0 of GPUs 0,1,2,3
    rank 1 uses cuda:0 of GPUs 0,1,2,3
    rank 2 uses cuda:1 of GPUs 0,1,2,3
    rank 3 uses cuda:1 of GPUs 0,1,2,3
    rank 4 uses cuda:2 of GPUs 0,1,2,3
    rank 5 uses cuda:2 of GPUs 0,1,2,3
    rank 6 uses cuda:3 of GPUs 0,1,2,3
    rank 7 uses cuda:3 of GPUs 0,1,2,3
"""

from ray.train import ScalingConfig

scaling_config = ScalingConfig(
    num_workers=8,
    resources_per_worker={
        "CPU": 4,
        "GPU": 0.5,
    },
    use_gpu=True,
)

# What the guide goes on to use it for.
import os

import ray
from ray import train
from ray.train.torch import TorchConfig, TorchTrainer, get_device

ray.init(num_cpus=32, log_to_driver=False)


class Devices(train.UserCallback):
    def after_report(self, run_context, metrics, checkpoint):
        for rank, one in enumerate(metrics):
            print(f"rank {rank} uses {one['device']} of GPUs {one['visible']}")


def train_func():
    train.report({"device": str(get_device()), "visible": os.environ["CUDA_VISIBLE_DEVICES"]})


# NCCL takes one rank for each device.
TorchTrainer(
    train_func,
    scaling_config=scaling_config,
    torch_config=TorchConfig(backend="gloo"),
    run_config=train.RunConfig(callbacks=[Devices()]),
).fit()
