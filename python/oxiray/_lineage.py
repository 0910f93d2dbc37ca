"""Whether lost values are made again, and how much may be recorded for that: Ray's two switches.

Both are configuration of the whole cluster: variables of the environment, which workers inherit, or entries of
`_system_config`, which become such variables for a daemon that `init` starts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from oxiray import _core

_SWITCH = "lineage_pinning_enabled"
_BYTES = "max_lineage_bytes"
_BYTES_DEFAULT = 1 << 30


def configure(system_config: Mapping[str, Any] | None = None) -> None:
    """Tells this process's runtime. Raises `ValueError` where a switch says something else than it can."""
    given = system_config or {}
    enabled = str(given.get(_SWITCH, os.environ.get(f"RAY_{_SWITCH}", "1"))).lower() not in ("0", "false")
    said = given.get(_BYTES, os.environ.get(f"RAY_{_BYTES}", _BYTES_DEFAULT))
    try:
        limit = int(said)
    except (TypeError, ValueError):
        limit = -1
    if limit < 0:
        raise ValueError(f"{_BYTES} is {said!r}, and is to be a number of bytes from 0 on (RAY_{_BYTES}, _system_config)")
    _core.configure_lineage(enabled, limit)


def variables(system_config: Mapping[str, Any]) -> dict[str, str]:
    """What a daemon's environment, and so its workers', is to say of `system_config`."""
    return {f"RAY_{name}": str(system_config[name]) for name in (_SWITCH, _BYTES) if name in system_config}
