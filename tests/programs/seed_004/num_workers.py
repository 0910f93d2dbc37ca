"""Seed 004: eight workers, one CPU each, ranked from 0 to 7.

EXPECTED
    ranks [0, 1, 2, 3, 4, 5, 6, 7] of 8
"""

import ray
from ray.train import ScalingConfig

scaling_config = ScalingConfig(
    num_workers=8
)

# What the guide goes on to use it for.
from ray import train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

ray.init(num_cpus=8)


class Ranks(train.UserCallback):
    def after_report(self, run_context, metrics, checkpoint):
        print(f"ranks {[one['rank'] for one in metrics]} of {metrics[0]['size']}")


def train_func():
    context = train.get_context()
    train.report({"rank": context.get_world_rank(), "size": context.get_world_size()})


DataParallelTrainer(
    train_func, scaling_config=scaling_config, run_config=train.RunConfig(callbacks=[Ranks()])
).fit()
