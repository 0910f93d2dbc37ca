"""Seed 003: AWS Neuron cores: an actor on the first device, a task on the second.

EXPECTED
    (NeuronCoreActor pid=52420) Neuron Core IDs: ['0']
    (NeuronCoreActor pid=52420) NEURON_RT_VISIBLE_CORES: 0
    (neuron_core_task pid=51830) Neuron Core IDs: ['1']
    (neuron_core_task pid=51830) NEURON_RT_VISIBLE_CORES: 1
"""

import os

import ray

ray.init(resources={"neuron_cores": 2})


@ray.remote(resources={"neuron_cores": 1})
class NeuronCoreActor:
    def ping(self):
        print("Neuron Core IDs: {}".format(ray.get_runtime_context().get_accelerator_ids()["neuron_cores"]))
        print("NEURON_RT_VISIBLE_CORES: {}".format(os.environ["NEURON_RT_VISIBLE_CORES"]))


@ray.remote(resources={"neuron_cores": 1})
def neuron_core_task():
    print("Neuron Core IDs: {}".format(ray.get_runtime_context().get_accelerator_ids()["neuron_cores"]))
    print("NEURON_RT_VISIBLE_CORES: {}".format(os.environ["NEURON_RT_VISIBLE_CORES"]))


neuron_core_actor = NeuronCoreActor.remote()
ray.get(neuron_core_actor.ping.remote())
# The actor uses the first Neuron Core so the task uses the second one.
ray.get(neuron_core_task.remote())
