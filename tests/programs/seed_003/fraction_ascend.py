"""Seed 003: four tasks with a quarter of an Ascend NPU each run side by side.

EXPECTED
    four tasks that wait for each other ended
"""

import tempfile

import ray

ray.init(num_cpus=4, resources={"NPU": 1})


@ray.remote(resources={"NPU": 0.25})
def f(folder):
    import os
    import tempfile
    import time

    tempfile.mkstemp(dir=folder)
    while len(os.listdir(folder)) < 4:
        time.sleep(0.01)


# The four tasks created here can execute concurrently
# and share the same NPU.
with tempfile.TemporaryDirectory() as folder:
    ray.get([f.remote(folder) for _ in range(4)])
print("four tasks that wait for each other ended")
