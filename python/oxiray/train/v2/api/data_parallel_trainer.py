"""The general trainer, under the name of its module in Ray."""

from oxiray.train.data_parallel_trainer import DataParallelTrainer

__all__ = ["DataParallelTrainer"]
