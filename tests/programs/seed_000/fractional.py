"""Seed 000: four tasks of a quarter share one GPU at the same time.

EXPECTED
    four tasks of a second each took less than three, all on GPU [0]
"""

import time

import ray

ray.init(num_cpus=4, num_gpus=1)


@ray.remote(num_gpus=0.25)
def f():
    import time

    time.sleep(1)
    return ray.get_gpu_ids()


began = time.monotonic()
ids = ray.get([f.remote() for _ in range(4)])
if time.monotonic() - began < 3 and ids == [[0]] * 4:
    print("four tasks of a second each took less than three, all on GPU [0]")
