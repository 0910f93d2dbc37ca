"""Variables of Ray's that something here reads or sets, as regular expressions, for `oxiray compat`.

Invariant: `tests/api/test_compat.py` fails where a name in the sources is not here.
"""

from __future__ import annotations

from oxiray import _switches

#: Whole names; `RAY_` is part of them.
READ_ONES: tuple[str, ...] = (
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO",
    "RAY_ADDRESS",
    "RAY_CLOUD_INSTANCE_ID",
    "RAY_CLUSTER_(NAME|NAMESPACE)",
    "RAY_COLOR_PREFIX",
    "RAY_DEDUP_LOGS(_AGG_WINDOW_S|_ALLOW_REGEX|_SKIP_REGEX)?",
    "RAY_ENABLE_AUTO_CONNECT",
    "RAY_EXPERIMENTAL_NOSET_[A-Z_]+",
    "RAY_IGNORE_UNHANDLED_ERRORS",
    "RAY_(IP|PORT)",
    "RAY_JOB_ID",
    "RAY_LOGGING_CONFIG_ENCODING",
    "RAY_LOG_TO_DRIVER",
    "RAY_NAMESPACE",
    "RAY_NODE_(MARKET_TYPE|REGION|TYPE_NAME|ZONE)",
    "RAY_OVERRIDE_JOB_RUNTIME_ENV",
    "RAY_OVERRIDE_RESOURCES",
    "RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES",
    "RAY_RAYLET_PID",
    "RAY_RUNTIME_ENV(_CREATE_WORKING_DIR|_IGNORE_GITIGNORE)?",
    "RAY_TASK_MAX_RETRIES",
    "RAY_TMPDIR",
    # Nothing is reported to anybody, whatever it says.
    "RAY_USAGE_STATS_ENABLED",
    "RAY_TRAIN_(CALLBACKS|COLLECTIVE_WARN_INTERVAL_S|HEALTH_CHECK_INTERVAL_S)",
    "RAY_TRAIN_(WORKER_GROUP_START_TIMEOUT_S|WORKER_HEALTH_CHECK_TIMEOUT_S)",
    "RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper",
    *(f"RAY_{name}" for name in _switches.KNOWN),
)
