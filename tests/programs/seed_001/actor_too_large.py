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


# A machine with much else to do may be late once.
for _ in range(10):
    began = time.monotonic()
    actor = GPUActor.remote()
    try:
        ray.get(actor.ping.remote(), timeout=60)
    except ray.exceptions.ActorUnschedulableError as error:
        seconds, text = time.monotonic() - began, str(error)
    if seconds < 1:
        break
if seconds < 1 and "5" in text and "4" in text:
    print("ActorUnschedulableError within a second, naming the 5 GPUs asked and the 4 there are")
else:
    print(seconds, text)
