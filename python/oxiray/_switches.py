"""Ray's switches that every process of a cluster acts on.

They are configuration of the whole cluster: variables of the environment, which workers inherit, or entries of
`_system_config`, which become such variables for a daemon that `init` starts.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from oxiray import _core

#: The switches that something here reads.
KNOWN = (
    "allow_out_of_band_object_ref_serialization",
    "lineage_pinning_enabled",
    "local_fs_capacity_threshold",
    "max_lineage_bytes",
    "memory_monitor_refresh_ms",
    "memory_usage_threshold",
    "object_spilling_config",
    "object_spilling_directory",
    "record_ref_creation_sites",
    "task_oom_retries",
    "task_oom_retry_delay_base_ms",
    "task_retry_delay_ms",
)
_LINEAGE = "lineage_pinning_enabled"
_LINEAGE_BYTES = "max_lineage_bytes"
_LINEAGE_BYTES_DEFAULT = 1 << 30
_RETRY_DELAY = "task_retry_delay_ms"
_MEMORY_RETRIES = "task_oom_retries"
_MEMORY_RETRY_DELAY = "task_oom_retry_delay_base_ms"
_SITES = "record_ref_creation_sites"

#: The variables of the switches.
VARIABLES = frozenset(f"RAY_{name}" for name in KNOWN)

#: What `_system_config` says, in the driver that started the cluster; workers have variables for it.
_given: Mapping[str, Any] = {}


#: The same of clusters that this process started and that it may connect to, by their addresses.
of_started: dict[str, Mapping[str, Any]] = {}


class _Settings(NamedTuple):
    """What a runtime is told of the switches."""

    lineage: tuple[bool, int]
    retries: tuple[int, int, int]
    records_sites: bool


def configure(system_config: Mapping[str, Any] | None = None) -> None:
    """Tells this process's runtime. Raises `ValueError` where a switch says something else than it can."""
    global _given
    if system_config is not None:
        _given = dict(system_config)
        forget()
    settings = read()
    _core.configure_lineage(*settings.lineage)
    _core.configure_retries(*settings.retries)
    _core.record_sites(settings.records_sites)


@functools.cache
def read() -> _Settings:
    """What the switches say. A template reads them once for all its workers."""
    return _Settings(
        (is_on(_LINEAGE, default=True), _count(_LINEAGE_BYTES, _LINEAGE_BYTES_DEFAULT, "bytes")),
        (
            _count(_RETRY_DELAY, 0, "milliseconds"),
            _count(_MEMORY_RETRIES, -1, "attempts", least=-1),
            _count(_MEMORY_RETRY_DELAY, 1000, "milliseconds"),
        ),
        is_on(_SITES, default=False),
    )


def forget() -> None:
    """They are read again: the environment has changed, or what was given."""
    read.cache_clear()


def is_on(name: str, *, default: bool) -> bool:
    """Whether a switch is on, by `_system_config` or else by its variable."""
    return str(_said(name, default)).lower() not in ("0", "false")


def variables(system_config: Mapping[str, Any]) -> dict[str, str]:
    """What a daemon's environment, and so its workers', is to say of `system_config`."""
    return {f"RAY_{name}": str(value) for name, value in system_config.items() if isinstance(value, (str, int, float))}


def _said(name: str, default: Any) -> Any:
    return _given.get(name, os.environ.get(f"RAY_{name}", default))


def _count(name: str, default: int, unit: str, *, least: int = 0) -> int:
    said = _said(name, default)
    try:
        count = int(said)
    except (TypeError, ValueError):
        count = least - 1
    if not least <= count < 1 << 63:
        raise ValueError(f"{name} is {said!r}, and is to be a number of {unit} from {least} on (RAY_{name}, _system_config)")
    return count
