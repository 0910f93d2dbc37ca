"""Seed 004: a variable of the job's runtime environment reaches every worker.

ENVIRONMENT
    OXIRAY_HOST_ROOT=tests/fixtures/hosts/nvidia-h100x8

EXPECTED
    (RayTrainWorker pid=1) init_process_group(nccl, rank 0 of 2)
    (RayTrainWorker pid=1) set_device(cuda:0) -> physical GPU 0
    (RayTrainWorker pid=1) NCCL_SOCKET_IFNAME=ens5
    (RayTrainWorker pid=2) init_process_group(nccl, rank 1 of 2)
    (RayTrainWorker pid=2) set_device(cuda:1) -> physical GPU 1
    (RayTrainWorker pid=2) NCCL_SOCKET_IFNAME=ens5
"""

import os

from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer


def train_func():
    print(f"NCCL_SOCKET_IFNAME={os.environ['NCCL_SOCKET_IFNAME']}")


import ray

runtime_env = {"env_vars": {"NCCL_SOCKET_IFNAME": "ens5"}}
ray.init(runtime_env=runtime_env)

trainer = TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=2, use_gpu=True))
trainer.fit()
