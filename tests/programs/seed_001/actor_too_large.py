"""Seed 001: an actor that asks for more GPUs than `ray.init` was given: an exception, within a second, that says so.

EXPECTED
    ActorUnschedulableError within a second, naming the 5 GPUs asked and the 4 there are
"""

import time

import ray

ray.init(num_gpus=4)


@ray.remote(num_gpus=5)
class GPUActor(object):
    def ping(self):
        pass


began = time.monotonic()
actor = GPUActor.remote()
try:
    ray.get(actor.ping.remote(), timeout=10)
except ray.exceptions.ActorUnschedulableError as error:
    if time.monotonic() - began < 1 and "5" in str(error) and "4" in str(error):
        print("ActorUnschedulableError within a second, naming the 5 GPUs asked and the 4 there are")
    else:
        print(time.monotonic() - began, error)
