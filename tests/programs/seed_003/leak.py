"""Seed 003: a task that never frees its device memory cannot harm the next: each runs in a process of its own.

EXPECTED
    (leak_gpus pid=1) Created TensorFlow device (GPU:0 -> physical GPU 0)
    (leak_gpus pid=2) Created TensorFlow device (GPU:0 -> physical GPU 0)
"""

import ray

ray.init(num_gpus=1)


# By default, ray does not reuse workers for GPU tasks to prevent
# GPU resource leakage.
@ray.remote(num_gpus=1)
def leak_gpus():
    import tensorflow as tf

    # This task allocates memory on the GPU and then never release it.
    tf.Session()


ray.get(leak_gpus.remote())
ray.get(leak_gpus.remote())
