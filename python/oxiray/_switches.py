"""Ray's switches that every process of a cluster acts on.

They are configuration of the whole cluster: variables of the environment, which workers inherit, or entries of
`_system_config`, which become such variables for a daemon that `init` starts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from oxiray import _core, _sites

_LINEAGE = "lineage_pinning_enabled"
_LINEAGE_BYTES = "max_lineage_bytes"
_LINEAGE_BYTES_DEFAULT = 1 << 30
_RETRY_DELAY = "task_retry_delay_ms"


def configure(system_config: Mapping[str, Any] | None = None) -> None:
    """Tells this process's runtime. Raises `ValueError` where a switch says something else than it can."""
    given = system_config or {}
    enabled = str(given.get(_LINEAGE, os.environ.get(f"RAY_{_LINEAGE}", "1"))).lower() not in ("0", "false")
    _core.configure_lineage(enabled, _count(given, _LINEAGE_BYTES, _LINEAGE_BYTES_DEFAULT, "bytes"))
    _core.configure_retries(_count(given, _RETRY_DELAY, 0, "milliseconds"))
    _sites.configure()


def variables(system_config: Mapping[str, Any]) -> dict[str, str]:
    """What a daemon's environment, and so its workers', is to say of `system_config`."""
    return {f"RAY_{name}": str(value) for name, value in system_config.items() if isinstance(value, (str, int, float))}


def _count(given: Mapping[str, Any], name: str, default: int, unit: str) -> int:
    said = given.get(name, os.environ.get(f"RAY_{name}", default))
    try:
        count = int(said)
    except (TypeError, ValueError):
        count = -1
    if not 0 <= count < 1 << 63:
        raise ValueError(f"{name} is {said!r}, and is to be a number of {unit} from 0 on (RAY_{name}, _system_config)")
    return count
