"""Seed 000: which GPUs an actor and a task may use, as `ray.get_gpu_ids()` says it: numbers.

EXPECTED
    (GPUActor pid=52420) GPU ids: [0]
    (GPUActor pid=52420) CUDA_VISIBLE_DEVICES: 0
    (use_gpu pid=51830) GPU ids: [1]
    (use_gpu pid=51830) CUDA_VISIBLE_DEVICES: 1
"""

import os

import ray

ray.init(num_gpus=2)


@ray.remote(num_gpus=1)
class GPUActor:
    def ping(self):
        print("GPU ids: {}".format(ray.get_gpu_ids()))
        print("CUDA_VISIBLE_DEVICES: {}".format(os.environ["CUDA_VISIBLE_DEVICES"]))


@ray.remote(num_gpus=1)
def use_gpu():
    print("GPU ids: {}".format(ray.get_gpu_ids()))
    print("CUDA_VISIBLE_DEVICES: {}".format(os.environ["CUDA_VISIBLE_DEVICES"]))


gpu_actor = GPUActor.remote()
ray.get(gpu_actor.ping.remote())
# The actor holds the first GPU, so the task is given the second.
ray.get(use_gpu.remote())
