"""Seed 003: on a recorded machine with eight H100s, a task for an H100 runs and one for a V100 is told why it cannot.

ENVIRONMENT
    OXIRAY_HOST_ROOT=tests/fixtures/hosts/nvidia-h100x8

EXPECTED
    GPUs of this machine: 8
    ran on an H100, device ['0']
    TaskUnschedulableError: no machine here has a V100
"""

import ray
from ray.util.accelerators import NVIDIA_H100, NVIDIA_TESLA_V100

ray.init()
print("GPUs of this machine: {:.0f}".format(ray.cluster_resources()["GPU"]))


@ray.remote(num_gpus=1)
def train(data):
    return ray.get_runtime_context().get_accelerator_ids()["GPU"]


print("ran on an H100, device {}".format(ray.get(train.options(accelerator_type=NVIDIA_H100).remote(1))))
try:
    ray.get(train.options(accelerator_type=NVIDIA_TESLA_V100).remote(1), timeout=10)
except ray.exceptions.TaskUnschedulableError as error:
    if "V100" in str(error):
        print("TaskUnschedulableError: no machine here has a V100")
