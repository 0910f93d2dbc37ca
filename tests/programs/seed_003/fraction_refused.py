"""Seed 003: Neuron cores, TPUs and Gaudi HPUs are given whole or not at all.

EXPECTED
    neuron_cores: 0.5 is refused
    TPU: 0.5 is refused
    HPU: 0.5 is refused
"""

import ray

for resource in ("neuron_cores", "TPU", "HPU"):
    try:

        @ray.remote(resources={resource: 0.5})
        def half():
            pass

    except ValueError:
        print(f"{resource}: 0.5 is refused")
