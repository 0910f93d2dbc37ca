"""Seed 000: resources are logical: a machine may offer more GPUs than it has, and tasks are spread over them.

EXPECTED
    GPUs offered: 64
    a task with all of them: 0 to 63
"""

import ray

ray.init(num_gpus=64)


@ray.remote(num_gpus=64)
def use_all():
    return ray.get_gpu_ids()


print("GPUs offered: {:.0f}".format(ray.cluster_resources()["GPU"]))
ids = ray.get(use_all.remote())
if ids == list(range(64)):
    print("a task with all of them: {} to {}".format(ids[0], ids[-1]))
