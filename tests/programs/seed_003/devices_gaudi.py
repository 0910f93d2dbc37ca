"""Seed 003: Intel Gaudi HPUs: an actor on the first device, a task on the second.

EXPECTED
    (HPUActor pid=52420) HPU IDs: ['0']
    (HPUActor pid=52420) HABANA_VISIBLE_MODULES: 0
    (hpu_task pid=51830) HPU IDs: ['1']
    (hpu_task pid=51830) HABANA_VISIBLE_MODULES: 1
"""

import os

import ray

ray.init(resources={"HPU": 2})


@ray.remote(resources={"HPU": 1})
class HPUActor:
    def ping(self):
        print("HPU IDs: {}".format(ray.get_runtime_context().get_accelerator_ids()["HPU"]))
        print("HABANA_VISIBLE_MODULES: {}".format(os.environ["HABANA_VISIBLE_MODULES"]))


@ray.remote(resources={"HPU": 1})
def hpu_task():
    print("HPU IDs: {}".format(ray.get_runtime_context().get_accelerator_ids()["HPU"]))
    print("HABANA_VISIBLE_MODULES: {}".format(os.environ["HABANA_VISIBLE_MODULES"]))


hpu_actor = HPUActor.remote()
ray.get(hpu_actor.ping.remote())
# The actor uses the first HPU so the task uses the second one.
ray.get(hpu_task.remote())
