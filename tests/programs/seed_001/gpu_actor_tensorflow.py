"""Seed 001: an actor that keeps a TensorFlow session on its GPU.

EXPECTED
    (GPUActor pid=52420) Created TensorFlow device (GPU:0 -> physical GPU 0)
    (GPUActor pid=52421) Created TensorFlow device (GPU:0 -> physical GPU 1)
    gpu_ids: [[0], [1]]
"""

import os

import ray
import tensorflow as tf

ray.init(num_cpus=2, num_gpus=2)


@ray.remote(num_gpus=1)
class GPUActor(object):
    def __init__(self):
        self.gpu_ids = ray.get_gpu_ids()
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, self.gpu_ids))
        # TensorFlow keeps to the GPUs that CUDA_VISIBLE_DEVICES names.
        self.sess = tf.Session()

    def ids(self):
        return self.gpu_ids


first = GPUActor.remote()
first_ids = ray.get(first.ids.remote())
second = GPUActor.remote()
print("gpu_ids: {}".format([first_ids, ray.get(second.ids.remote())]))
