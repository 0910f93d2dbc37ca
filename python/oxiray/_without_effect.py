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
_PORTS = "no port is opened for it: processes of a machine find each other without"
_PLASMA = (
    "objects lie in memory that has no name in the file system: object_store_memory is its size, and "
    "object_spilling_directory where objects are spilled"
)
_CLIENT = "a program is a driver of the cluster itself, without a server of Ray Client between, and machines speak TLS among each other"
_MACHINES = "the nodes are daemons of this machine, and nothing is set up for them"

#: What each option means where it has its default, and why it has no effect, by the function that takes it.
OPTIONS: dict[str, dict[str, tuple[tuple[Any, ...], str]]] = {
    "init": {
        "dashboard_host": (("127.0.0.1", "localhost", None), _DASHBOARD),
        "proxy_server_url": ((None,), _DASHBOARD),
        "enable_resource_isolation": ((False,), _ISOLATION),
        "cgroup_path": ((None,), _ISOLATION),
        "system_reserved_cpu": ((None,), _ISOLATION),
        "system_reserved_memory": ((None,), _ISOLATION),
        "_plasma_directory": ((None,), _PLASMA),
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
    "add_node": {
        **{
            name: ((None,), _PORTS)
            for name in (
                "gcs_server_port", "min_worker_port", "max_worker_port", "node_manager_port", "object_manager_port", "worker_port_list",
                "ray_client_server_port", "metrics_export_port", "dashboard_agent_listen_port", "dashboard_agent_grpc_port",
                "runtime_env_agent_port",
            )
        },
        **{
            name: ((None,), _REDIS)
            for name in ("redis_port", "redis_address", "redis_username", "redis_password", "redis_shard_ports")
        },
        "dashboard_host": (("127.0.0.1", "localhost", None), _DASHBOARD),
        "plasma_directory": ((None,), _PLASMA),
        "huge_pages": ((None, False), _PLASMA),
        "session_dir": ((None,), "temp_dir says where sessions lie"),
        "runtime_env_dir_name": ((None,), "temp_dir says where sessions lie"),
        "gcs_address": ((None,), "the nodes of a Cluster join the head of that Cluster"),
        "log_to_driver": ((None, True), "init(log_to_driver=False) keeps what workers print from a driver"),
        "include_log_monitor": ((None, True), "init(log_to_driver=False) keeps what workers print from a driver"),
        "ray_debugger_external": ((None, False), "the debugger opens no port: `oxiray debug` reaches it from every machine of the cluster"),
        "tracing_startup_hook": ((None,), "init(_tracing_startup_hook=...) has the calls of a program be spans"),
        "no_monitor": ((None, False, True), "only an AutoscalingCluster has an autoscaler"),
        # On where nothing is said, and reports that are never made.
        "enable_object_reconstruction": ((None, True), "lost values are made again: RAY_lineage_pinning_enabled=0 turns that off"),
        "disable_usage_stats": ((None, True, False), "no use is ever reported"),
    },
    "AutoscalingCluster": {
        **{
            name: ((None,), _MACHINES)
            for name in (
                "cluster_name", "provider", "auth", "docker", "head_node_type", "file_mounts", "setup_commands", "initialization_commands",
                "head_setup_commands", "worker_setup_commands", "head_start_ray_commands", "worker_start_ray_commands",
                "cluster_synced_files", "file_mounts_sync_continuously", "rsync_exclude", "rsync_filter",
            )
        },
        "upscaling_speed": ((None,), "all nodes that what waits needs are started at once"),
        "autoscaler_v2": ((False, True), "there is one autoscaler"),
    },
    "connect": {
        "secure": ((False,), _CLIENT),
        "metadata": ((None,), _CLIENT),
        "connection_retries": ((3,), _CLIENT),
        "ignore_version": ((False,), _CLIENT),
        "_credentials": ((None,), _CLIENT),
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
