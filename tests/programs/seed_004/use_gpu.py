"""Seed 004: eight workers with a GPU each see all GPUs of their machine, and each uses its own.

ENVIRONMENT
    OXIRAY_HOST_ROOT=tests/fixtures/hosts/nvidia-h100x8

EXPECTED
    (RayTrainWorker pid=1) init_process_group(nccl, rank 0 of 8)
    (RayTrainWorker pid=1) set_device(cuda:0) -> physical GPU 0
    (RayTrainWorker pid=2) init_process_group(nccl, rank 1 of 8)
    (RayTrainWorker pid=2) set_device(cuda:1) -> physical GPU 1
    (RayTrainWorker pid=3) init_process_group(nccl, rank 2 of 8)
    (RayTrainWorker pid=3) set_device(cuda:2) -> physical GPU 2
    (RayTrainWorker pid=4) init_process_group(nccl, rank 3 of 8)
    (RayTrainWorker pid=4) set_device(cuda:3) -> physical GPU 3
    (RayTrainWorker pid=5) init_process_group(nccl, rank 4 of 8)
    (RayTrainWorker pid=5) set_device(cuda:4) -> physical GPU 4
    (RayTrainWorker pid=6) init_process_group(nccl, rank 5 of 8)
    (RayTrainWorker pid=6) set_device(cuda:5) -> physical GPU 5
    (RayTrainWorker pid=7) init_process_group(nccl, rank 6 of 8)
    (RayTrainWorker pid=7) set_device(cuda:6) -> physical GPU 6
    (RayTrainWorker pid=8) init_process_group(nccl, rank 7 of 8)
    (RayTrainWorker pid=8) set_device(cuda:7) -> physical GPU 7
"""

from ray.train import ScalingConfig

scaling_config = ScalingConfig(
    num_workers=8,
    use_gpu=True
)

# What the guide goes on to use it for.
from ray.train.torch import TorchTrainer


def train_func():
    pass


TorchTrainer(train_func, scaling_config=scaling_config).fit()
