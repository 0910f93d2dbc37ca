"""Seed 001: an actor keeps its GPU as long as it lives; its constructor returns a text, which Ray allows.

EXPECTED
    GPUs free while it lives: 3
    GPUs free once it is gone: 4
"""

import time

import ray

ray.init(num_gpus=4)


@ray.remote(num_gpus=1)
class GPUActor(object):
    def __init__(self):
        return "This actor is allowed to use GPUs {}.".format(ray.get_gpu_ids())


def free_gpus(wanted, deadline_s=20):
    """What the cluster says is free, once it says `wanted` or the deadline has passed: it is told with a delay."""
    ends = time.monotonic() + deadline_s
    while ray.available_resources().get("GPU") != wanted and time.monotonic() < ends:
        time.sleep(0.01)
    return ray.available_resources().get("GPU", 0)


actor = GPUActor.remote()
ray.get(actor.__ray_ready__.remote())
print("GPUs free while it lives: {:.0f}".format(free_gpus(3)))
del actor
print("GPUs free once it is gone: {:.0f}".format(free_gpus(4)))
