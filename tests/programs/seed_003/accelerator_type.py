"""Seed 003: a task that wants a Tesla V100 runs where one is declared.

EXPECTED
    This function was run on a node with a Tesla V100 GPU
"""

import ray
from ray.util.accelerators import NVIDIA_TESLA_V100

ray.init(num_gpus=1, resources={f"accelerator_type:{NVIDIA_TESLA_V100}": 1})


@ray.remote(num_gpus=1, accelerator_type=NVIDIA_TESLA_V100)
def train(data):
    return "This function was run on a node with a Tesla V100 GPU"


print(ray.get(train.remote(1)))
