"""Seed 000: an actor and a task, each with a Neuron core of its own.

EXPECTED
    (NeuronCoreActor pid=52420) neuron_core_ids: ['0']
    (NeuronCoreActor pid=52420) NEURON_RT_VISIBLE_CORES: 0
    (use_neuron_core_task pid=51830) neuron_core_ids: ['1']
    (use_neuron_core_task pid=51830) NEURON_RT_VISIBLE_CORES: 1
"""

import os

import ray
from ray.util.accelerators import AWS_NEURON_CORE

# A trn1.2xlarge instance has two Neuron cores.
ray.init(resources={"neuron_cores": 2})


@ray.remote(resources={"neuron_cores": 1})
class NeuronCoreActor:
    def info(self):
        ids = ray.get_runtime_context().get_accelerator_ids()["neuron_cores"]
        print("neuron_core_ids: {}".format(ids))
        print("NEURON_RT_VISIBLE_CORES: {}".format(os.environ["NEURON_RT_VISIBLE_CORES"]))


@ray.remote(resources={"neuron_cores": 1}, accelerator_type=AWS_NEURON_CORE)
def use_neuron_core_task():
    ids = ray.get_runtime_context().get_accelerator_ids()["neuron_cores"]
    print("neuron_core_ids: {}".format(ids))
    print("NEURON_RT_VISIBLE_CORES: {}".format(os.environ["NEURON_RT_VISIBLE_CORES"]))


neuron_core_actor = NeuronCoreActor.remote()
ray.get(neuron_core_actor.info.remote())
ray.get(use_neuron_core_task.remote())
