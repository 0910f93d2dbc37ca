"""Seed 000: what a GPU task leaks goes with its process, which no other task is given.

EXPECTED
    (leak_gpus pid=1) Created TensorFlow device (GPU:0 -> physical GPU 0)
    (leak_gpus pid=2) Created TensorFlow device (GPU:0 -> physical GPU 0)
    every task had a process of its own
"""

import os

import ray

ray.init(num_gpus=1)


@ray.remote(num_gpus=1)
def leak_gpus():
    import tensorflow as tf

    # Takes device memory and never gives it back.
    tf.Session()
    return os.getpid()


first, second = ray.get([leak_gpus.remote(), leak_gpus.remote()])
if first != second:
    print("every task had a process of its own")
