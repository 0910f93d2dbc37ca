"""Seed 003: Huawei Ascend NPUs: an actor on the first device, a task on the second.

EXPECTED
    (NPUActor pid=52420) NPU IDs: ['0']
    (NPUActor pid=52420) ASCEND_RT_VISIBLE_DEVICES: 0
    (npu_task pid=51830) NPU IDs: ['1']
    (npu_task pid=51830) ASCEND_RT_VISIBLE_DEVICES: 1
"""

import os

import ray

ray.init(resources={"NPU": 2})


@ray.remote(resources={"NPU": 1})
class NPUActor:
    def ping(self):
        print("NPU IDs: {}".format(ray.get_runtime_context().get_accelerator_ids()["NPU"]))
        print("ASCEND_RT_VISIBLE_DEVICES: {}".format(os.environ["ASCEND_RT_VISIBLE_DEVICES"]))


@ray.remote(resources={"NPU": 1})
def npu_task():
    print("NPU IDs: {}".format(ray.get_runtime_context().get_accelerator_ids()["NPU"]))
    print("ASCEND_RT_VISIBLE_DEVICES: {}".format(os.environ["ASCEND_RT_VISIBLE_DEVICES"]))


npu_actor = NPUActor.remote()
ray.get(npu_actor.ping.remote())
# The actor uses the first NPU so the task uses the second one.
ray.get(npu_task.remote())
