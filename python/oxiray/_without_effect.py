"""Options of Ray that are accepted and change nothing here, each with the reason and the way out.

Purpose: a program that passes them runs, and is told once a process, by the logger `ray`, what does not happen.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

logger = logging.getLogger("ray")

_DASHBOARD = (
    "the dashboard of a program's own cluster answers on this machine only: `oxiray start --head --dashboard-host=...` answers others"
)
_ISOLATION = "no cgroups are made for the daemon's own processes: limit the program where it is started, as by systemd-run or a container"
_REDIS = "there is no Redis: `oxiray start --head --store=...` says where the cluster's state is kept"
_EVENTS = "the state API lists these calls all the same"
_LABELS = "the labels of tasks and actors are shown nowhere"

#: What each option means where it has its default, and why it has no effect, by the function that takes it.
OPTIONS: dict[str, dict[str, tuple[tuple[Any, ...], str]]] = {
    "init": {
        "dashboard_host": (("127.0.0.1", "localhost", None), _DASHBOARD),
        "proxy_server_url": ((None,), _DASHBOARD),
        "enable_resource_isolation": ((False,), _ISOLATION),
        "cgroup_path": ((None,), _ISOLATION),
        "system_reserved_cpu": ((None,), _ISOLATION),
        "system_reserved_memory": ((None,), _ISOLATION),
        "_plasma_directory": (
            (None,),
            "objects lie in memory that has no name in the file system: object_store_memory is its size, and "
            "object_spilling_directory where objects are spilled",
        ),
        "_redis_username": ((None,), _REDIS),
        "_redis_password": ((None,), _REDIS),
        "_driver_object_store_memory": ((None,), "a driver has no store of its own: object_store_memory sizes the machine's"),
        "_metrics_export_port": ((None,), "no port is opened for metrics: `oxiray metrics` prints them"),
    },
    "remote": {
        "enable_task_events": ((True,), _EVENTS),
        "_labels": ((None, {}), _LABELS),
        "_actor_generator_backpressure_num_objects": (
            (None, -1),
            "the unread objects of an actor are not limited as a whole: limit those of each call with "
            "@method(_generator_backpressure_num_objects=...)",
        ),
    },
    "method": {
        "enable_task_events": ((True,), _EVENTS),
        "_labels": ((None, {}), _LABELS),
    },
    "JobConfig": {
        "code_search_path": (
            (None, [], ()),
            "workers import what the driver can import: name further folders in runtime_env['py_modules']",
        ),
        "_disable_job_level_lineage_reconstruction": (
            (False,),
            "lost values are made again: RAY_lineage_pinning_enabled=0 in the environment turns that off",
        ),
    },
}

_told: set[tuple[str, str]] = set()


def tell(function: str, given: Mapping[str, Any]) -> None:
    """Says once of each option in `given` that asks for something that it has no effect."""
    by_reason: dict[str, list[str]] = {}
    for name, (defaults, reason) in OPTIONS[function].items():
        if name in given and given[name] not in defaults and (function, name) not in _told:
            _told.add((function, name))
            by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        _warn([f"{function}({name}=)" for name in names], reason)


def tell_of_system_config(given: Iterable[str], known: Iterable[str]) -> None:
    """The same of entries of `_system_config` that nothing here reads."""
    names = [name for name in given if name not in known and ("_system_config", name) not in _told]
    _told.update(("_system_config", name) for name in names)
    if names:
        _warn(
            [f"_system_config[{name!r}]" for name in names],
            f"these are switches of Ray's own processes; those that Oxiray has are {', '.join(sorted(known))}",
        )


def _warn(options: list[str], reason: str) -> None:
    logger.warning("%s %s no effect: %s", ", ".join(options), "has" if len(options) == 1 else "have", reason)
