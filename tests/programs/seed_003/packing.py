"""Seed 003: halves of a GPU fill one device before the next is touched: 0, 0, 1.

EXPECTED
    (FractionalGPUActor pid=57417) GPU id: ['0']
    (FractionalGPUActor pid=57416) GPU id: ['0']
    (FractionalGPUActor pid=57418) GPU id: ['1']
"""

import ray

# Each of these actors holds a CPU as well: three of them need three, however many this machine has.
ray.init(num_cpus=3, num_gpus=3)


@ray.remote(num_gpus=0.5)
class FractionalGPUActor:
    def ping(self):
        print("GPU id: {}".format(ray.get_runtime_context().get_accelerator_ids()["GPU"]))


fractional_gpu_actors = [FractionalGPUActor.remote() for _ in range(3)]
# Ray tries to pack GPUs if possible.
[ray.get(fractional_gpu_actors[i].ping.remote()) for i in range(3)]
