"""Tools on top of the core: names of device types, scheduling strategies, and annotations."""

from oxiray.util import accelerators, annotations, debug, scheduling_strategies
from oxiray.util.debug import disable_log_once_globally, enable_periodic_logging, log_once

__all__ = [
    "accelerators",
    "annotations",
    "debug",
    "disable_log_once_globally",
    "enable_periodic_logging",
    "log_once",
    "scheduling_strategies",
]
