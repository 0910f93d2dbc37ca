"""Names that programs import."""

from __future__ import annotations

#: The dataset that `get_dataset_shard` returns where it is asked for none by name.
TRAIN_DATASET_KEY = "train"
V2_ENABLED_ENV_VAR = "RAY_TRAIN_V2_ENABLED"
HEALTH_CHECK_INTERVAL_S_ENV_VAR = "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"
WORKER_HEALTH_CHECK_TIMEOUT_S_ENV_VAR = "RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S"
WORKER_GROUP_START_TIMEOUT_S_ENV_VAR = "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"
COLLECTIVE_WARN_INTERVAL_S_ENV_VAR = "RAY_TRAIN_COLLECTIVE_WARN_INTERVAL_S"


def is_v2_enabled() -> bool:
    """Whether training is Ray Train's second version: it always is."""
    return True
