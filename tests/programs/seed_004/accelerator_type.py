"""Seed 004: a worker on a machine with a certain type of GPU.

EXPECTED
    (RayTrainWorker pid=1) init_process_group(nccl, rank 0 of 1)
    (RayTrainWorker pid=1) set_device(cuda:0) -> physical GPU 1
    (RayTrainWorker pid=1) {'GPU': 1.0, 'accelerator_type:A100': 0.001}
"""

import ray
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer


# The two GPUs of this cluster are A100s, whatever the machine has.
ray.init(num_gpus=2, resources={"accelerator_type:A100": 1})


@ray.remote(num_gpus=1)
class Other:
    def ready(self):
        pass


# Another program holds the first.
other = Other.remote()
ray.get(other.ready.remote())


def train_func():
    print(ray.get_runtime_context().get_assigned_resources())


trainer = TorchTrainer(
    train_func,
    scaling_config=
ScalingConfig(
    num_workers=1,
    use_gpu=True,
    accelerator_type="A100"
)
)
trainer.fit()
