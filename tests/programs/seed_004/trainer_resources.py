"""Seed 004: four workers of two CPUs on a machine with eight: the trainer itself takes nothing.

EXPECTED
    deprecated: ScalingConfig(trainer_resources)
    4 workers of {'CPU': 2.0}
"""

import warnings

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")

    from ray.train import ScalingConfig

    scaling_config = ScalingConfig(
        num_workers=4,
        resources_per_worker={
            "CPU": 2,
        },
        trainer_resources={
            "CPU": 0,
        }
    )

import ray
from ray import train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

for warning in caught:
    assert warning.category is DeprecationWarning
    print("deprecated:", str(warning.message).partition(" is deprecated")[0])

ray.init(num_cpus=8)


class Sizes(train.UserCallback):
    def after_report(self, run_context, metrics, checkpoint):
        print(f"{len(metrics)} workers of {metrics[0]['resources']}")


def train_func():
    train.report({"resources": ray.get_runtime_context().get_assigned_resources()})


DataParallelTrainer(train_func, scaling_config=scaling_config, run_config=train.RunConfig(callbacks=[Sizes()])).fit()
