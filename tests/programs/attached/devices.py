"""Attaches to a started machine and shows, as JSON, what two holders of one device each were given.

Usage: devices.py RESOURCE VARIABLE
"""

import json
import os
import sys

import ray

resource, variable = sys.argv[1:]
options = {"num_gpus": 1} if resource == "GPU" else {"resources": {resource: 1}}
ray.init(address="auto")


@ray.remote(**options)
class Holder:
    def shown(self):
        return ray.get_runtime_context().get_accelerator_ids()[resource], os.environ[variable]


holders = [Holder.remote() for _ in range(2)]
print(json.dumps({"offered": ray.cluster_resources()[resource], "shown": ray.get([h.shown.remote() for h in holders])}))
