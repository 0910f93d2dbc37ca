"""Names of variables, and which version of Ray Train this is."""

from oxiray.train.constants import (
    COLLECTIVE_WARN_INTERVAL_S_ENV_VAR,
    HEALTH_CHECK_INTERVAL_S_ENV_VAR,
    V2_ENABLED_ENV_VAR,
    WORKER_GROUP_START_TIMEOUT_S_ENV_VAR,
    WORKER_HEALTH_CHECK_TIMEOUT_S_ENV_VAR,
    is_v2_enabled,
)

__all__ = [
    "COLLECTIVE_WARN_INTERVAL_S_ENV_VAR",
    "HEALTH_CHECK_INTERVAL_S_ENV_VAR",
    "V2_ENABLED_ENV_VAR",
    "WORKER_GROUP_START_TIMEOUT_S_ENV_VAR",
    "WORKER_HEALTH_CHECK_TIMEOUT_S_ENV_VAR",
    "is_v2_enabled",
]
