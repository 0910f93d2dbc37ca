"""Seed 003: four tasks with a quarter of an NVIDIA GPU each run side by side.

EXPECTED
    four tasks of a second each took less than three
"""

import time

import ray

ray.init(num_cpus=4, num_gpus=1)


@ray.remote(num_gpus=0.25)
def f():
    import time

    time.sleep(1)


began = time.monotonic()
# The four tasks created here can execute concurrently
# and share the same GPU.
ray.get([f.remote() for _ in range(4)])
if time.monotonic() - began < 3:
    print("four tasks of a second each took less than three")
