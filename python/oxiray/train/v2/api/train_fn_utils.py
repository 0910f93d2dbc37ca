"""What a training function calls, under the name of its module in Ray."""

from oxiray.train import get_all_reported_checkpoints, get_checkpoint, get_context, get_dataset_shard, get_preemption_info, report

__all__ = ["get_all_reported_checkpoints", "get_checkpoint", "get_context", "get_dataset_shard", "get_preemption_info", "report"]
