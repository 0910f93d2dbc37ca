"""Seed 003: `max_calls=0` keeps the worker, and with it what it allocated, for the next task.

EXPECTED
    (keep_gpus pid=1) Created TensorFlow device (GPU:0 -> physical GPU 0)
    (keep_gpus pid=1) Created TensorFlow device (GPU:0 -> physical GPU 0)
"""

import ray

ray.init(num_gpus=1)


@ray.remote(num_gpus=1, max_calls=0)
def keep_gpus():
    import tensorflow as tf

    tf.Session()


ray.get(keep_gpus.remote())
ray.get(keep_gpus.remote())
