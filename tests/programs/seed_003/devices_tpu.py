"""Seed 003: Google TPUs: an actor on the first device, a task on the second.

EXPECTED
    (TPUActor pid=52420) TPU IDs: ['0']
    (TPUActor pid=52420) TPU_VISIBLE_CHIPS: 0
    (tpu_task pid=51830) TPU IDs: ['1']
    (tpu_task pid=51830) TPU_VISIBLE_CHIPS: 1
"""

import os

import ray

ray.init(resources={"TPU": 2})


@ray.remote(resources={"TPU": 1})
class TPUActor:
    def ping(self):
        print("TPU IDs: {}".format(ray.get_runtime_context().get_accelerator_ids()["TPU"]))
        print("TPU_VISIBLE_CHIPS: {}".format(os.environ["TPU_VISIBLE_CHIPS"]))


@ray.remote(resources={"TPU": 1})
def tpu_task():
    print("TPU IDs: {}".format(ray.get_runtime_context().get_accelerator_ids()["TPU"]))
    print("TPU_VISIBLE_CHIPS: {}".format(os.environ["TPU_VISIBLE_CHIPS"]))


tpu_actor = TPUActor.remote()
ray.get(tpu_actor.ping.remote())
# The actor uses the first TPU so the task uses the second one.
ray.get(tpu_task.remote())
