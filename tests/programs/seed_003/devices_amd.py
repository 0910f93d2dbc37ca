"""Seed 003: AMD GPUs: an actor on the first device, a task on the second.

ENVIRONMENT
    OXIRAY_GPU_FAMILY=amd

EXPECTED
    (GPUActor pid=52420) GPU IDs: ['0']
    (GPUActor pid=52420) ROCR_VISIBLE_DEVICES: 0
    (gpu_task pid=51830) GPU IDs: ['1']
    (gpu_task pid=51830) ROCR_VISIBLE_DEVICES: 1
"""

import os

import ray

ray.init(num_gpus=2)


@ray.remote(num_gpus=1)
class GPUActor:
    def ping(self):
        print("GPU IDs: {}".format(ray.get_runtime_context().get_accelerator_ids()["GPU"]))
        print("ROCR_VISIBLE_DEVICES: {}".format(os.environ["ROCR_VISIBLE_DEVICES"]))


@ray.remote(num_gpus=1)
def gpu_task():
    print("GPU IDs: {}".format(ray.get_runtime_context().get_accelerator_ids()["GPU"]))
    print("ROCR_VISIBLE_DEVICES: {}".format(os.environ["ROCR_VISIBLE_DEVICES"]))


gpu_actor = GPUActor.remote()
ray.get(gpu_actor.ping.remote())
# The actor uses the first GPU so the task uses the second one.
ray.get(gpu_task.remote())
