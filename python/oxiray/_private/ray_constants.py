"""Constants that programs read, for compatibility: names of variables and resources, limits, and defaults, as they hold here."""

from __future__ import annotations

import os

from oxiray import _init_options, _missing, _options
from oxiray._common.utils import env_bool, env_float, env_integer
from oxiray.remote_function import CODE_BYTES_LIMIT, CODE_BYTES_USUAL

# Variables of the environment.
RAY_ADDRESS_ENVIRONMENT_VARIABLE = "RAY_ADDRESS"
RAY_NAMESPACE_ENVIRONMENT_VARIABLE = "RAY_NAMESPACE"
RAY_RUNTIME_ENV_ENVIRONMENT_VARIABLE = "RAY_RUNTIME_ENV"
RAY_RUNTIME_ENV_CREATE_WORKING_DIR_ENV_VAR = "RAY_RUNTIME_ENV_CREATE_WORKING_DIR"
RAY_OVERRIDE_DASHBOARD_URL = "RAY_OVERRIDE_DASHBOARD_URL"
RAY_RUNTIME_ENV_IGNORE_GITIGNORE = "RAY_RUNTIME_ENV_IGNORE_GITIGNORE"

# Resources, and what they are counted in.
GPU, TPU, NPU, HPU, NEURON_CORES = "GPU", "TPU", "NPU", "HPU", "neuron_cores"
DEFAULT_RESOURCES = {"CPU", "GPU", "memory", "object_store_memory"}
MIN_RESOURCE_GRANULARITY = 0.0001
MAX_RESOURCE_QUANTITY = _init_options.QUANTITY_MAX
RAY_DEFAULT_LABEL_KEYS_PREFIX = "ray.io/"

# Sizes, in bytes, and shares.
ID_SIZE = 28
FUNCTION_SIZE_ERROR_THRESHOLD = CODE_BYTES_LIMIT
FUNCTION_SIZE_WARN_THRESHOLD = CODE_BYTES_USUAL
OBJECT_STORE_MINIMUM_MEMORY_BYTES = _init_options.STORE_BYTES_MIN
MAX_INT64_VALUE = 2**63 - 1

# Tasks and actors.
DEFAULT_ACTOR_CREATION_CPU_SIMPLE = 0
DEFAULT_ACTOR_CREATION_CPU_SPECIFIED = 1
DEFAULT_ACTOR_METHOD_CPU_SIMPLE = 1
DEFAULT_ACTOR_METHOD_CPU_SPECIFIED = 0
DEFAULT_ACTOR_METHOD_NUM_RETURN_VALS = 1
DEFAULT_MAX_CONCURRENCY_THREADED = 1
DEFAULT_TASK_MAX_RETRIES = _options.DEFAULT_MAX_RETRIES
DEFAULT_RUNTIME_ENV_TIMEOUT_SECONDS = 600

# A cluster's port, and its newest session.
DEFAULT_PORT = 6379
SESSION_LATEST = "session_latest"
IS_WINDOWS_OR_OSX = False
ENABLE_RAY_CLUSTER = True

# Logs.
LOGGER_FORMAT = "%(asctime)s\t%(levelname)s %(filename)s:%(lineno)s -- %(message)s"
LOGGER_LEVEL = "info"
LOGGER_LEVEL_CHOICES = ["debug", "info", "warning", "error", "critical"]
RAY_LOG_TO_DRIVER = env_bool("RAY_LOG_TO_DRIVER", True)
RAY_DEDUP_LOGS = env_bool("RAY_DEDUP_LOGS", True)
RAY_DEDUP_LOGS_AGG_WINDOW_S = env_integer("RAY_DEDUP_LOGS_AGG_WINDOW_S", 5)
RAY_DEDUP_LOGS_ALLOW_REGEX = os.environ.get("RAY_DEDUP_LOGS_ALLOW_REGEX")
RAY_DEDUP_LOGS_SKIP_REGEX = os.environ.get("RAY_DEDUP_LOGS_SKIP_REGEX")

# What idle workers are called.
WORKER_PROCESS_TYPE_IDLE_WORKER = "ray::IDLE"

__all__ = ["env_bool", "env_float", "env_integer"]

__getattr__ = _missing.attributes(__name__)
