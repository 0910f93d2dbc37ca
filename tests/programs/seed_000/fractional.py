"""Seed 000: four tasks of a quarter share one GPU at the same time.

EXPECTED
    four tasks that wait for each other ended, all on GPU [0]
"""

import tempfile

import ray

ray.init(num_cpus=4, num_gpus=1)


@ray.remote(num_gpus=0.25)
def f(folder):
    import os
    import tempfile
    import time

    tempfile.mkstemp(dir=folder)
    while len(os.listdir(folder)) < 4:
        time.sleep(0.01)
    return ray.get_gpu_ids()


with tempfile.TemporaryDirectory() as folder:
    ids = ray.get([f.remote(folder) for _ in range(4)])
if ids == [[0]] * 4:
    print("four tasks that wait for each other ended, all on GPU [0]")
