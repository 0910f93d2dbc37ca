"""Seed 001: a remote function that says which GPU it may use.

EXPECTED
    This function is allowed to use GPUs [0].
"""

import ray

ray.init(num_gpus=4)


@ray.remote(num_gpus=1)
def gpu_method():
    return "This function is allowed to use GPUs {}.".format(ray.get_gpu_ids())


print(ray.get(gpu_method.remote()))
