"""What `init(...)` may say, checked and joined with the environment variables that speak for it.

Purpose: one frozen record, so that the code that starts or joins a cluster reads
no raw keyword and no variable.

Invariant: nothing is started or connected before everything given was checked.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from oxiray import _gpu_memory, _labels, _logging, runtime_env as environments
from oxiray._logging import LoggingConfig

#: What addresses of Ray Client begin with, and the port that they name where they name none.
CLIENT_SCHEME = "ray://"
CLIENT_PORT = 10001
#: Smallest object store Ray accepts, in bytes.
STORE_BYTES_MIN = 75 * 1024 * 1024
#: The largest quantity of a resource; the ledger counts in ten-thousandths of one.
QUANTITY_MAX = 1e14

#: Accepted without being part of the documented signature; each with the types it may have.
_HIDDEN: dict[str, tuple[type, ...]] = {
    "_enable_object_reconstruction": (bool,),
    "_plasma_directory": (str,),
    "object_spilling_directory": (str, os.PathLike),
    "_node_ip_address": (str,),
    "device_isolation": (str,),
    "device_violations": (str,),
    "gpu_memory": (int, float, str),
    "gpu_memory_enforcement": (str,),
    "gpu_memory_library": (str, os.PathLike),
    "_driver_object_store_memory": (int,),
    "_memory": (int, float),
    "_redis_username": (str,),
    "_redis_password": (str,),
    "_temp_dir": (str, os.PathLike),
    "_metrics_export_port": (int,),
    "_system_config": (dict,),
    "_tracing_startup_hook": (str, object),
    "_node_name": (str,),
    "_skip_env_hook": (bool,),
}
_PREDEFINED = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "_memory", "object_store_memory": "object_store_memory"}
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


@dataclass(frozen=True, slots=True)
class InitOptions:
    """Everything `init` needs to know.

    `address` is None for "the cluster of this machine, or a new private one",
    `"local"` for a new private one, `"auto"`, or `host:port`.
    """

    address: str | None = None
    num_cpus: int | None = None
    num_gpus: int | None = None
    resources: dict[str, float] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    object_store_memory: int | None = None
    memory: int | None = None
    ignore_reinit_error: bool = False
    include_dashboard: bool | None = None
    dashboard_host: str = "127.0.0.1"
    dashboard_port: int | None = None
    job_config: Any = None
    configure_logging: bool = True
    logging_level: int = logging.INFO
    logging_format: str | None = None
    logging_config: dict[str, Any] | None = None
    tracing_hook: Any = None
    log_to_driver: bool = True
    namespace: str | None = None
    default_lifetime: str = "non_detached"
    job_metadata: dict[str, str] = field(default_factory=dict)
    runtime_env: dict[str, Any] | None = None
    node_name: str | None = None
    node_ip_address: str | None = None
    temp_dir: str | None = None
    object_spilling_directory: str | None = None
    device_isolation: str | None = None
    device_violations: str | None = None
    gpu_memory: int | None = None
    gpu_memory_enforcement: str | None = None
    gpu_memory_library: str | None = None
    job_priority: int | None = None
    system_config: dict[str, Any] = field(default_factory=dict)

    @property
    def must_attach(self) -> bool:
        """Whether only an existing cluster will do."""
        return self.address is not None and self.address != "local"


#: What `help(init)` says.
DOCUMENTATION = """Connects to a cluster, or starts a private one on this machine that ends with this process.

    address: str or None. "host:port" of a node on this machine, also as "ray://host:port" (port 10001, that of Ray Client,
        stands for the cluster's own), "auto" for the cluster of this machine, "local" for a new private one. By default
        RAY_ADDRESS, else the cluster of this machine, else a new private one.
    num_cpus: int or None. Processors of a new cluster; by default those of this machine.
    num_gpus: int or None. GPUs of a new cluster; by default those that are found.
    resources: dict of str to number, or None. Further resources of a new cluster, by name; none by default.
    labels: dict of str to str, or None. Labels of a new cluster's node; none by default.
    object_store_memory: int or None. Size of a new cluster's object store in bytes, 75 MiB at least; by default a share of
        this machine's memory.
    local_mode: bool. Removed: True raises RuntimeError.
    ignore_reinit_error: bool. Whether to keep the connection there is, rather than to raise; False by default.
    include_dashboard: bool or None. Whether a new cluster answers over HTTP, on this machine: Ray's jobs API, lists of what runs,
        and a page. By default it does where dashboard_port is given.
    dashboard_port: int or None. Where; the first free port from 8265 on by default.
    dashboard_host: str; proxy_server_url: str or None. Without effect: for other machines `oxiray start --head
        --dashboard-host` answers.
    job_config: JobConfig or None. Further settings of the job; none by default.
    configure_logging: bool. Whether the logger "ray" writes to standard error, as logging_level and logging_format say;
        True by default. With False the program's own handlers show what it logs.
    logging_level: int or str. From which level on the loggers "ray" and "oxiray" log; logging.INFO by default.
    logging_format: str or None. The format of what "ray" logs; by default with time, level, file and line.
    logging_config: LoggingConfig or None. How the driver and the workers log; by default as RAY_LOGGING_CONFIG_ENCODING
        (TEXT or JSON) says, else as Python does. With it the lines of workers are shown without the task's name.
    log_to_driver: bool or None. Whether the output of workers is shown here; by default RAY_LOG_TO_DRIVER, else True.
    namespace: str or None. Where actors have their names; by default RAY_NAMESPACE, else one of this program's own.
    runtime_env: dict, RuntimeEnv or None. What tasks and actors find around them; by default RAY_RUNTIME_ENV, else nothing.
    enable_resource_isolation: bool; cgroup_path: str or None; system_reserved_cpu: float or None (CPUs);
        system_reserved_memory: int or None (bytes). Without effect: no cgroups are made for the daemon.
    _memory: int or None. What a new cluster offers as the resource "memory", in bytes; by default a share of the machine's.
    _temp_dir: str or None. The folder of a new cluster's sessions; by default OXIRAY_TMPDIR, RAY_TMPDIR, else /tmp.
    object_spilling_directory: str or None. Where a new cluster writes objects that memory has no room for: a folder, or
        storage that speaks S3, as "s3://bucket/prefix"; by default its session's folder.
    device_isolation: "variable", "watch", "fence", "require" or None. How far a new cluster keeps devices from those that they
        were not granted to: by variables, by variables and a look at what is open, by the kernel where that is possible, or
        by the kernel in any case; by default OXIRAY_DEVICE_ISOLATION, else "variable". An option of Oxiray's own.
    device_violations: "report", "end" or None. What becomes of a process that "watch" finds with a device open which it was not
        granted: it is reported to its driver, or ended as well; by default OXIRAY_DEVICE_VIOLATIONS, else "report". An option of
        Oxiray's own.
    gpu_memory: int, float, str or None. How much memory each GPU of a new cluster has, in bytes or as "80GiB", for requests
        with gpu_memory=; by default what is found. An option of Oxiray's own.
    gpu_memory_enforcement: str or None. What keeps processes of a new cluster to the memory of a GPU that they asked for: a list of
        "mig", "dmem", "mps", "interposer", "framework", "watched" and "none", tried in that order, each also as "require:mps"; by default
        OXIRAY_GPU_MEMORY_ENFORCEMENT, else all that work there. An option of Oxiray's own.
    gpu_memory_library: str, path or None. The library of "interposer"; by default OXIRAY_GPU_MEMORY_LIBRARY, else none. An option
        of Oxiray's own.
    _node_name: str or None. The name of a new cluster's node; by default its address.
    _node_ip_address: str or None. Of several nodes on this machine, the one to connect to; by default the first.
    _system_config: dict or None. Switches of a new cluster, none by default: lineage_pinning_enabled (bool, True),
        max_lineage_bytes (int, 1 GiB), task_retry_delay_ms (int, 0), local_fs_capacity_threshold (float, 0.95),
        object_spilling_config (str, Ray's JSON of type "filesystem" or "smart_open"),
        record_ref_creation_sites (bool, False), allow_out_of_band_object_ref_serialization (bool, True). Others have no
        effect.
    _enable_object_reconstruction: bool. The same as lineage_pinning_enabled; that is on by default.
    _skip_env_hook: bool. Without effect: there are no such hooks.
    _tracing_startup_hook: str, callable or None. What installs a tracer provider of OpenTelemetry, here and in each worker, "module:function":
        calls are spans then. None by default.
    _plasma_directory, _redis_username, _redis_password: str or None; _driver_object_store_memory, _metrics_export_port:
        int or None. Without effect.

    What has no effect is told of once, by the logger "ray". Returns a RayContext.

    Raises RuntimeError where this process is connected already, ConnectionError where there is no such cluster, ValueError
    or TypeError where what was asked for does not fit the machine, or makes no sense.
    """


def init_options(
    address: str | None = None,
    *,
    num_cpus: int | None = None,
    num_gpus: int | None = None,
    resources: Mapping[str, float] | None = None,
    labels: Mapping[str, str] | None = None,
    object_store_memory: int | None = None,
    local_mode: bool = False,
    ignore_reinit_error: bool = False,
    include_dashboard: bool | None = None,
    dashboard_host: str = "127.0.0.1",
    dashboard_port: int | None = None,
    job_config: Any = None,
    configure_logging: bool = True,
    logging_level: int | str = logging.INFO,
    logging_format: str | None = None,
    logging_config: Any = None,
    log_to_driver: bool | None = None,
    namespace: str | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    enable_resource_isolation: bool = False,
    cgroup_path: str | None = None,
    system_reserved_cpu: float | None = None,
    system_reserved_memory: int | None = None,
    proxy_server_url: str | None = None,
    **hidden: Any,
) -> InitOptions:
    """Check what `init` was given (its signature is this one) and fill in what the environment says."""
    _refuse_removed(local_mode, hidden)
    _check_hidden(hidden)
    _check_isolation(enable_resource_isolation, cgroup_path, system_reserved_cpu, system_reserved_memory)
    _check_type("include_dashboard", include_dashboard, bool)
    _check_type("dashboard_port", dashboard_port, int)
    if dashboard_port is not None and not 0 < dashboard_port < 1 << 16:
        raise ValueError(f"dashboard_port is {dashboard_port}; a port is a number from 1 to 65535")
    _check_type("proxy_server_url", proxy_server_url, str)
    capacity = {"num_cpus": num_cpus, "num_gpus": num_gpus, "resources": resources, "labels": labels}
    sizes = {"object_store_memory": object_store_memory, **hidden}
    chosen_address = _address(address, given={**capacity, **sizes})
    memory = _bytes("_memory", hidden.get("_memory"))
    return InitOptions(
        address=chosen_address,
        num_cpus=_whole("num_cpus", "CPU", num_cpus),
        num_gpus=_whole("num_gpus", "GPU", num_gpus),
        resources=_resources(resources),
        labels=_checked_labels(labels),
        object_store_memory=_store_bytes(object_store_memory),
        memory=memory,
        ignore_reinit_error=bool(ignore_reinit_error),
        include_dashboard=include_dashboard,
        dashboard_host=dashboard_host,
        dashboard_port=dashboard_port,
        job_config=job_config,
        configure_logging=bool(configure_logging),
        logging_level=_logging_level(logging_level),
        logging_format=logging_format,
        logging_config=_logging_config(logging_config, job_config),
        tracing_hook=hidden.get("_tracing_startup_hook"),
        log_to_driver=_flag("RAY_LOG_TO_DRIVER", default=True) if log_to_driver is None else bool(log_to_driver),
        namespace=_namespace(namespace, job_config),
        default_lifetime=getattr(job_config, "_default_actor_lifetime", "non_detached"),
        job_metadata=_job_metadata(job_config),
        job_priority=getattr(job_config, "priority", None),
        runtime_env=_runtime_env(runtime_env, job_config),
        node_name=hidden.get("_node_name"),
        node_ip_address=hidden.get("_node_ip_address"),
        temp_dir=_path(hidden.get("_temp_dir")),
        object_spilling_directory=_path(hidden.get("object_spilling_directory")),
        device_isolation=hidden.get("device_isolation"),
        device_violations=hidden.get("device_violations"),
        gpu_memory=_gpu_memory.size("gpu_memory", hidden["gpu_memory"]) if hidden.get("gpu_memory") is not None else None,
        gpu_memory_enforcement=hidden.get("gpu_memory_enforcement"),
        gpu_memory_library=_path(hidden.get("gpu_memory_library")),
        system_config=_system_config(hidden),
    )


def _refuse_removed(local_mode: object, hidden: dict[str, Any]) -> None:
    if local_mode:
        raise RuntimeError(
            "`local_mode` is no longer supported (nor is it in Ray 2.60): call the undecorated function to debug it "
            "in this process"
        )
    if hidden.pop("storage", None) is not None:
        raise RuntimeError("the `storage` argument has been removed: pass the path to the library that uses it")
    unknown = sorted(set(hidden) - set(_HIDDEN))
    if unknown:
        raise RuntimeError(f"Unknown keyword argument(s): {', '.join(unknown)}. See help(init) for those there are.")


def _check_hidden(hidden: Mapping[str, Any]) -> None:
    for name, value in hidden.items():
        if value is not None and not isinstance(value, _HIDDEN[name]):
            names = " or ".join(kind.__name__ for kind in _HIDDEN[name])
            raise TypeError(f"the {name} given to init must be a {names}, but {value!r} is a {type(value)}")


def _check_isolation(enabled: bool, path: object, cpu: object, memory: object) -> None:
    given = {"cgroup_path": path, "system_reserved_cpu": cpu, "system_reserved_memory": memory}
    for name, value in given.items():
        if value is not None and not enabled:
            raise ValueError(
                f"{name} is given ({value!r}), but cannot be set when resource isolation is not enabled: add "
                "enable_resource_isolation=True"
            )


def _check_type(name: str, value: object, expected: type) -> None:
    if value is not None and not isinstance(value, expected):
        raise TypeError(f"the {name} given to init must be a {expected.__name__}, but {value!r} is a {type(value)}")


def _address(address: str | None, given: Mapping[str, Any]) -> str | None:
    _check_type("address", address, str)
    source = "given to init"
    if address in (None, "auto") and os.environ.get("RAY_ADDRESS"):
        address = os.environ["RAY_ADDRESS"]
        source = "in the environment variable RAY_ADDRESS"
    if address is None or address == "local":
        return address
    if address.startswith(CLIENT_SCHEME):
        address = address.removeprefix(CLIENT_SCHEME)
        if ":" not in address:
            address = f"{address}:{CLIENT_PORT}"
    host, colon, port = address.rpartition(":")
    is_pair = bool(host and colon) and port.isascii() and port.isdigit() and 0 < int(port) < 65536
    if address != "auto" and not is_pair:
        raise ValueError(
            f"Invalid address format: {address!r} {source}. Give host:port, 'auto' for the cluster of this machine, or "
            "'local' for a new one."
        )
    refused = (
        "num_cpus", "num_gpus", "resources", "labels", "object_store_memory", "_system_config", "_node_name",
        "_enable_object_reconstruction",
    )  # fmt: skip
    # A number of 0 is given too, and equals False.
    wrong = [name for name in refused if given.get(name) is not False and given.get(name) not in (None, {})]
    if wrong:
        raise ValueError(
            f"When connecting to an existing cluster, {' and '.join(wrong)} must not be provided (the address {source} "
            f"is {address!r}): they were settled when the cluster was started. Leave them out, or use "
            "address='local' for a new cluster."
        )
    return address


def _system_config(hidden: Mapping[str, Any]) -> dict[str, Any]:
    config = dict(hidden.get("_system_config") or {})
    if hidden.get("_enable_object_reconstruction"):
        config["lineage_pinning_enabled"] = True
    return config


def _whole(keyword: str, resource: str, quantity: Any) -> int | None:
    if quantity is None:
        return None
    _check_quantity(keyword, resource, quantity)
    return int(quantity)


def _bytes(keyword: str, size: Any) -> int | None:
    """Bytes, which may be said as a fraction: a share of the machine's memory rarely is a whole number."""
    if size is None:
        return None
    if not isinstance(size, (int, float)):
        raise TypeError(f"{keyword} must be a number of bytes, but {size!r} is a {type(size)}")
    if size != size or size > QUANTITY_MAX:
        raise ValueError(f"{keyword} must be a finite number of at most {QUANTITY_MAX:.0e} bytes, but is {size}")
    return _whole(keyword, "memory", math.floor(size))


def _check_quantity(keyword: str, resource: str, quantity: Any) -> None:
    if not isinstance(quantity, (int, float)):
        raise TypeError(f"{keyword} must be a number, but {quantity!r} is a {type(quantity)}")
    if quantity < 0:
        raise ValueError(f"Resource quantities must be nonnegative: {keyword} says {resource} is {quantity}.")
    if quantity > QUANTITY_MAX:
        raise ValueError(f"Resource quantities must be at most {QUANTITY_MAX}: {keyword} says {quantity}.")
    if quantity != quantity or not float(quantity).is_integer():
        raise ValueError(
            f"Resource quantities must all be whole numbers: {keyword} says {resource} is {quantity}. A machine has "
            "whole devices; tasks may ask for shares of them."
        )


def _resources(resources: Mapping[str, float] | None) -> dict[str, float]:
    if resources is None:
        return {}
    if not isinstance(resources, Mapping):
        raise TypeError(f"the resources given to init must be a dict, but {resources!r} is a {type(resources)}")
    for name, quantity in resources.items():
        if name in _PREDEFINED:
            # Ray refuses this with an assertion, and tests of programs rely on its type.
            raise AssertionError(
                f"{name!r} cannot be a custom resource because it is one of the default resources: use "
                f"{_PREDEFINED[name]}={quantity!r} instead"
            )
        if not isinstance(name, str) or not name:
            raise TypeError(f"the names of resources must be strings that are not empty, but one is {name!r}")
        _check_quantity(f"resources[{name!r}]", name, quantity)
    return {name: float(quantity) for name, quantity in resources.items()}


def _checked_labels(labels: Mapping[str, str] | None) -> dict[str, str]:
    if labels is None:
        return {}
    _labels.check_labels("labels", labels)
    return dict(labels)


def _store_bytes(size: Any) -> int | None:
    if size is None:
        return None
    if not isinstance(size, (int, float)):
        raise TypeError(f"object_store_memory must be a number of bytes, but {size!r} is a {type(size)}")
    if size < STORE_BYTES_MIN:
        raise ValueError(
            f"object_store_memory is {size} bytes, but the minimum allowed is {STORE_BYTES_MIN}: give more, or leave it "
            "out for a share of this machine's memory"
        )
    if not size <= QUANTITY_MAX:
        raise ValueError(f"object_store_memory must be a finite number of at most {QUANTITY_MAX:.0e} bytes, but is {size}")
    return int(size)


def _logging_level(level: Any) -> int:
    if isinstance(level, str):
        known = logging.getLevelName(level.upper())
        if not isinstance(known, int):
            raise ValueError(f"Unknown level: {level!r}. Use one of DEBUG, INFO, WARNING, ERROR, CRITICAL.")
        return known
    _check_type("logging_level", level, int)
    return logging.INFO if level is None else int(level)


def _job_metadata(job_config: Any) -> dict[str, str]:
    """What the program says of its job, and, where it is the entrypoint of a submitted one, of which."""
    submission = os.environ.get("OXIRAY_SUBMISSION_ID")
    own = {"job_submission_id": submission} if submission else {}
    return own | {str(key): str(value) for key, value in (getattr(job_config, "metadata", None) or {}).items()}


def _logging_config(config: Any, job_config: Any) -> dict[str, Any] | None:
    if config is None:
        config = getattr(job_config, "py_logging_config", None)
    if config is None:
        return _logging.from_variables()
    if not isinstance(config, LoggingConfig):
        raise TypeError(f"logging_config must be a LoggingConfig, but {config!r} is a {type(config)}")
    return config.to_dict()


def _flag(variable: str, *, default: bool) -> bool:
    text = os.environ.get(variable)
    if text is None:
        return default
    if text.strip().lower() in _TRUE:
        return True
    if text.strip().lower() in _FALSE:
        return False
    raise ValueError(f"the environment variable {variable} is {text!r}, but must be 1 or 0: correct or unset it")


def _namespace(namespace: Any, job_config: Any) -> str | None:
    if namespace is None:
        namespace = getattr(job_config, "ray_namespace", None) or os.environ.get("RAY_NAMESPACE") or None
    if namespace is None:
        return None
    if not isinstance(namespace, str):
        raise TypeError(f"namespace must be None or a string, but {namespace!r} is a {type(namespace)}")
    if not namespace:
        raise ValueError('"" is not a valid namespace. Pass None for one of this program\'s own.')
    return namespace


def _runtime_env(given: Mapping[str, Any] | None, job_config: Any) -> dict[str, Any] | None:
    asked = environments.checked(given if given is not None else getattr(job_config, "runtime_env", None))
    text = os.environ.get("RAY_RUNTIME_ENV")
    if not text:
        return None if asked is None else dict(asked)
    try:
        injected = environments.checked(json.loads(text))
    except (ValueError, TypeError) as reason:
        kind = ValueError if isinstance(reason, ValueError) else TypeError
        raise kind(
            f"the environment variable RAY_RUNTIME_ENV is no runtime environment written as JSON ({reason}): correct "
            "or unset it"
        ) from None
    conflicts = environments.conflicts(injected or {}, asked or {})
    if conflicts and os.environ.get("RAY_OVERRIDE_JOB_RUNTIME_ENV") != "1":
        raise ValueError(
            f"the runtime_env given to init and the one the job was submitted with (RAY_RUNTIME_ENV) disagree on "
            f"{', '.join(conflicts)}: remove it from one, or set RAY_OVERRIDE_JOB_RUNTIME_ENV=1 for init to win"
        )
    return environments.merge(injected, asked)


def _path(path: Any) -> str | None:
    return None if path is None else os.fspath(path)
