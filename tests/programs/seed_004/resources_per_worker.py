"""Seed 004: eight workers of four CPUs and two GPUs each, on two machines of eight GPUs.

EXPECTED
    rank 0: machine 0, {'CPU': 4.0, 'GPU': 2.0}, GPUs [0, 1]
    rank 1: machine 0, {'CPU': 4.0, 'GPU': 2.0}, GPUs [2, 3]
    rank 2: machine 0, {'CPU': 4.0, 'GPU': 2.0}, GPUs [4, 5]
    rank 3: machine 0, {'CPU': 4.0, 'GPU': 2.0}, GPUs [6, 7]
    rank 4: machine 1, {'CPU': 4.0, 'GPU': 2.0}, GPUs [0, 1]
    rank 5: machine 1, {'CPU': 4.0, 'GPU': 2.0}, GPUs [2, 3]
    rank 6: machine 1, {'CPU': 4.0, 'GPU': 2.0}, GPUs [4, 5]
    rank 7: machine 1, {'CPU': 4.0, 'GPU': 2.0}, GPUs [6, 7]
"""

from ray.train import ScalingConfig

scaling_config = ScalingConfig(
    num_workers=8,
    resources_per_worker={
        "CPU": 4,
        "GPU": 2,
    },
    use_gpu=True,
)

# What the guide goes on to use it for.
import ray
from ray import train
from ray.cluster_utils import Cluster
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 16, "num_gpus": 8})
cluster.add_node(num_cpus=16, num_gpus=8)
ray.init(address=cluster.address)


class Places(train.UserCallback):
    def after_report(self, run_context, metrics, checkpoint):
        for rank, one in enumerate(metrics):
            print(f"rank {rank}: machine {one['machine']}, {one['resources']}, GPUs {one['gpus']}")


def train_func():
    resources = ray.get_runtime_context().get_assigned_resources()
    machine = train.get_context().get_node_rank()
    train.report({"machine": machine, "resources": resources, "gpus": ray.get_gpu_ids()})


DataParallelTrainer(
    train_func, scaling_config=scaling_config, run_config=train.RunConfig(callbacks=[Places()])
).fit()
