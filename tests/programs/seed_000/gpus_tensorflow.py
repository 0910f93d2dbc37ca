"""Seed 000: a task whose TensorFlow session uses the GPU it was given.

EXPECTED
    (use_gpu pid=51830) Created TensorFlow device (GPU:0 -> physical GPU 0)
"""

import ray

ray.init(num_gpus=1)


@ray.remote(num_gpus=1)
def use_gpu():
    import tensorflow as tf

    # TensorFlow keeps to the GPUs that CUDA_VISIBLE_DEVICES names.
    tf.Session()


ray.get(use_gpu.remote())
