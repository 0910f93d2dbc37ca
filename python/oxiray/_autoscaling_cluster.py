"""A cluster that grows and shrinks, all on this machine: for tests of programs that make it do so.

Invariants:
1. The head, the autoscaler and the machines that it started end with `shutdown()`, and with this process at the latest.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oxiray import _cli, _without_effect

#: How long the autoscaler may take to end its machines, in seconds.
_END_LIMIT = 30.0
class AutoscalingCluster:
    """A head, and as many further nodes as what waits needs: `start()`, then `init("auto")`, then `shutdown()`.

    `worker_node_types` are Ray's: each has `resources`, `min_workers`, `max_workers`, and may have `labels`, `priority`
    and `idle_timeout_s`. `idle_timeout_minutes` says how long a node may be idle, five minutes where it is left out.
    `max_workers` limits all nodes besides the head together, where there is one type of them; of several, their own limits must
    not be more together. `autoscaler_v2` chooses between Ray's two autoscalers, of which Oxiray's is neither.
    """

    def __init__(
        self,
        head_resources: Mapping[str, float],
        worker_node_types: Mapping[str, Mapping[str, Any]],
        autoscaler_v2: bool = False,
        idle_timeout_minutes: float = 5,
        **config_kwargs: Any,
    ) -> None:
        limit = config_kwargs.pop("max_workers", None)
        unknown = sorted(set(config_kwargs) - set(_without_effect.OPTIONS["AutoscalingCluster"]))
        if unknown:
            raise ValueError(f"AutoscalingCluster() got {', '.join(unknown)}, which it does not know")
        _without_effect.tell("AutoscalingCluster", {**config_kwargs, "autoscaler_v2": autoscaler_v2})
        self._head_resources = dict(head_resources)
        self._groups = [_group(name, kind, idle_timeout_minutes * 60) for name, kind in worker_node_types.items()]
        if limit is not None:
            _limit(self._groups, limit)
        self._head: Any = None
        self._autoscaler: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def start(self, _system_config: Any = None, override_env: Mapping[str, str] | None = None) -> None:
        """Starts the head and the autoscaler; `init("auto")` connects to it. What is started twice stays as it is.

        `_system_config` are switches of the cluster, as `init` takes them.
        """
        from oxiray import cluster_utils

        if self._head is not None:
            return
        given = dict(self._head_resources)
        known = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory", "object_store_memory": "object_store_memory"}
        options = {keyword: given.pop(name) for name, keyword in known.items() if name in given}
        self._head = cluster_utils._start(
            None,
            {
                **cluster_utils._DEFAULTS, **options, "resources": given, "env_vars": override_env,
                "_system_config": _system_config,
            },
        )
        atexit.register(self.shutdown)
        self._folder = tempfile.TemporaryDirectory(prefix="oxiray-groups-")
        groups = Path(self._folder.name) / "groups.json"
        groups.write_text(json.dumps({"groups": self._groups}))
        command = [str(_cli.native_binary()), "autoscaler", "run", "--address", self._head.address]
        session = Path(self._head.session_dir)
        log = (session.parent / "logs" / session.name / "autoscaler.log").open("ab")
        with log:
            self._autoscaler = subprocess.Popen(
                [*command, "--groups", str(groups)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(override_env or {})},
                start_new_session=True,
            )

    @property
    def address(self) -> str | None:
        """What `init(address=...)` takes; None while it does not run."""
        return None if self._head is None else self._head.address

    def shutdown(self) -> None:
        """Ends the machines, the autoscaler and the head."""
        atexit.unregister(self.shutdown)
        autoscaler, self._autoscaler = self._autoscaler, None
        if autoscaler is not None:
            autoscaler.terminate()
            try:
                autoscaler.wait(_END_LIMIT)
            except subprocess.TimeoutExpired:
                autoscaler.kill()
                autoscaler.wait()
        head, self._head = self._head, None
        if head is not None:
            head.kill_all_processes(allow_graceful=True)
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _limit(groups: list[dict[str, Any]], limit: int) -> None:
    """Has there be at most so many nodes of all groups. Raises `ValueError` where that is no limit of each group."""
    if len(groups) == 1:
        groups[0]["max"] = min(groups[0]["max"], limit)
        groups[0]["min"] = min(groups[0]["min"], groups[0]["max"])
    elif (together := sum(group["max"] for group in groups)) > limit:
        raise ValueError(
            f"max_workers={limit}, and the types of nodes may have {together} together: Oxiray limits each type and not all together, "
            "so lower the max_workers of some"
        )


def _group(name: str, kind: Mapping[str, Any], idle_timeout_s: float) -> dict[str, Any]:
    """Ray's type of node, as the autoscaler's group."""
    unknown = sorted(set(kind) - {"resources", "min_workers", "max_workers", "node_config", "labels", "priority", "idle_timeout_s"})
    if unknown:
        raise ValueError(f"the node type {name!r} has {', '.join(unknown)}, which means nothing here")
    return {
        "name": name,
        "min": kind.get("min_workers", 0),
        "max": kind.get("max_workers", 0),
        "resources": {resource: float(amount) for resource, amount in kind["resources"].items()},
        "labels": dict(kind.get("labels") or {}),
        "priority": kind.get("priority", 0),
        "idle_timeout_s": float(kind.get("idle_timeout_s", idle_timeout_s)),
    }
