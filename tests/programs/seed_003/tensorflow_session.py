"""Seed 003: a TensorFlow session takes the devices its task was given, and no other.

EXPECTED
    (gpu_task pid=51830) Created TensorFlow device (GPU:0 -> physical GPU 0)
"""

import ray

ray.init(num_gpus=2)


@ray.remote(num_gpus=1)
def gpu_task():
    import tensorflow as tf

    # Create a TensorFlow session. TensorFlow restricts itself to use the
    # GPUs specified by the CUDA_VISIBLE_DEVICES environment variable.
    tf.Session()


ray.get(gpu_task.remote())
