"""Seed 001: a remote function that names its GPUs to TensorFlow itself.

EXPECTED
    (gpu_method pid=51830) Created TensorFlow device (GPU:0 -> physical GPU 0)
"""

import os

import ray
import tensorflow as tf

ray.init(num_gpus=4)


@ray.remote(num_gpus=1)
def gpu_method():
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, ray.get_gpu_ids()))
    # Create a TensorFlow session, which keeps to the GPUs that CUDA_VISIBLE_DEVICES names.
    tf.Session()


ray.get(gpu_method.remote())
