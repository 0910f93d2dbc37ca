"""Seed 000: three half-GPU actors on three GPUs take the first GPU twice, then the second.

EXPECTED
    (FractionalGPUActor pid=57417) GPU id: [0]
    (FractionalGPUActor pid=57416) GPU id: [0]
    (FractionalGPUActor pid=57418) GPU id: [1]
"""

import ray

# Each of these actors holds a CPU as well: three of them need three, however many this machine has.
ray.init(num_cpus=3, num_gpus=3)


@ray.remote(num_gpus=0.5)
class FractionalGPUActor:
    def ping(self):
        print("GPU id: {}".format(ray.get_gpu_ids()))


fractional_gpu_actors = [FractionalGPUActor.remote() for _ in range(3)]
# One GPU is filled before the next is begun.
for actor in fractional_gpu_actors:
    ray.get(actor.ping.remote())
