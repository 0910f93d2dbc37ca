"""This process's connection to a cluster: `init`, `shutdown`, and what lies between.

Invariants:
1. There is at most one connection; `generation` counts them, so that whatever was prepared on an earlier
   one is prepared anew.
2. A private daemon is this process's child: it ends with the connection, and is reaped here.
"""

from __future__ import annotations

import atexit
import inspect
import json
import logging
import os
import pickle
import platform
import shlex
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from oxiray import (
    _cli,
    _core,
    _environment,
    _events,
    _init_options,
    _logging,
    _pickling,
    _switches,
    _tracing,
    _without_effect,
    runtime_env as environments,
)
from oxiray._init_options import InitOptions, init_options
from oxiray._version import RAY_COMMIT, RAY_VERSION

logger = logging.getLogger("oxiray")
#: What a user sees of connecting, as Ray names it.
user_logger = logging.getLogger("ray")

#: How long the last output of workers may take to arrive, in seconds.
_LAST_NEWS_LIMIT = 10.0
#: How much of the exception that ends the program listings show.
_LAST_ERROR_CHARACTERS_MAX = 1000

generation = 0
job_environment: dict[str, Any] = {}
#: How long actors live that say nothing of it.
default_lifetime = "non_detached"
#: What libraries want to be called after each connecting of a driver.
post_init_hooks: list[Callable[[], Any]] = []
#: Whether this driver is told what its workers print.
is_shown_logs = True
#: In a worker, the interpreter, import path and directory of the driver that it works for.
driver_side: tuple[str, list[str], str] | None = None
#: A cluster that runs: its directory, address and secret, and the address of the node.
_Session = tuple[Path, str, str, str]
_lock = threading.RLock()
_daemon_pid: int | None = None
_context: RayContext | None = None


class RayContext(Mapping[str, Any]):
    """What `init` returns: facts of the connection. As a context manager it ends the connection."""

    def __init__(self, address_info: dict[str, Any]) -> None:
        self.address_info = address_info
        self.python_version = platform.python_version()
        self.ray_version = RAY_VERSION
        self.ray_commit = RAY_COMMIT

    @property
    def dashboard_url(self) -> str:
        """Where the cluster answers over HTTP, as `host:port`; empty where it does not, or not yet.

        What RAY_OVERRIDE_DASHBOARD_URL says goes before that: where people reach it through something in between.
        """
        if "RAY_OVERRIDE_DASHBOARD_URL" in os.environ:
            said = os.environ["RAY_OVERRIDE_DASHBOARD_URL"]
            return said.partition("://")[2] if "://" in said else said
        try:
            told = json.loads((Path(self.address_info["session_dir"]) / "dashboard.json").read_text())
        except (OSError, ValueError):
            return ""
        return str(told["url"]).partition("://")[2]

    def disconnect(self) -> None:
        """Ends the connection."""
        shutdown()

    def __enter__(self) -> RayContext:
        return self

    def __exit__(self, *_: object) -> None:
        shutdown()

    def __getitem__(self, key: str) -> Any:
        return self.address_info[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.address_info)

    def __len__(self) -> int:
        return len(self.address_info)

    def __repr__(self) -> str:
        return f"RayContext(address={self.address_info['address']!r}, python_version={self.python_version!r})"


def init(address: str | None = None, **keywords: Any) -> RayContext:  # noqa: D103  documented with its options
    global _context
    options = init_options(address, **keywords)
    with _lock:
        if _core.is_connected():
            if options.ignore_reinit_error or _core.context()["is_worker"]:
                if options.ignore_reinit_error and not _core.context()["is_worker"]:
                    user_logger.info("Calling ray.init() again after it has already been called.")
                if _context is None:
                    _context = RayContext(_address_info(_core.context()))
                return _context
            raise RuntimeError(
                "Maybe you called ray.init twice by accident? This process is connected already: call ray.shutdown() first, "
                "or pass ignore_reinit_error=True to keep the connection there is"
            )
        if options.configure_logging:
            _logging.configure_own(options.logging_level, options.logging_format)
        else:
            _logging.leave_own()
        if options.logging_config is not None:
            _logging.configure(_logging.LoggingConfig(**options.logging_config))
        _without_effect.tell("init", keywords)
        _without_effect.tell_of_system_config(options.system_config, _switches.KNOWN)
        return _open(options)


init.__doc__ = _init_options.DOCUMENTATION
init.__signature__ = inspect.signature(init_options).replace(return_annotation=RayContext)  # type: ignore[attr-defined]


def _open(options: InitOptions) -> RayContext:
    global _context, default_lifetime, driver_side, generation, is_shown_logs, job_environment
    job_environment = _environment.settled(options.runtime_env)
    driver_side = None
    default_lifetime = options.default_lifetime
    is_shown_logs = options.log_to_driver
    _tracing.use(options.tracing_hook)
    _core.set_job_priority(options.job_priority)
    session = _found(options)
    if session is not None:
        if options.address is None:
            _refuse_capacity(session, options)
        user_logger.info("Connecting to existing Ray cluster at address: %s...", session[1])
    try:
        info = _attach(session, options) if session is not None else _start_private(options)
    except BaseException:
        _reap_daemon()
        raise
    generation += 1
    _switches.configure(options.system_config or _switches.of_started.get(info["address"], {}))
    _events.start(with_names=options.logging_config is None)
    _context = RayContext(_address_info(info))
    user_logger.info("Started a local Ray instance." if session is None else "Connected to Ray cluster.")
    for hook in list(post_init_hooks):
        hook()
    return _context


def _found(options: InitOptions) -> _Session | None:
    try:
        return _core.find_session(options.address, options.node_ip_address)
    except ConnectionError as missing:
        # The port of a server of Ray Client means the cluster of its host, where that is this one.
        host, _, port = (options.address or "").rpartition(":")
        if port != str(_init_options.CLIENT_PORT):
            raise
        try:
            session = _core.find_session("auto", options.node_ip_address)
        except ConnectionError:
            raise missing from None
        if session is None or host not in ("localhost", "127.0.0.1", session[1].rpartition(":")[0], session[3]):
            raise
        return session


def _refuse_capacity(session: _Session, options: InitOptions) -> None:
    """A cluster that runs already has its size; asking for another one is a mistake that Ray refuses too."""
    given = {name: getattr(options, name) for name in ("num_cpus", "num_gpus", "resources", "labels", "object_store_memory")}
    asked = [name for name, value in given.items() if value]
    if asked:
        _, address, _, _ = session
        raise ValueError(
            f"When connecting to an existing cluster, {', '.join(asked)} must not be provided: one of this user runs at "
            f"{address}, and init() joins it. Leave them out, stop it with `oxiray stop`, or pass "
            "address='local' for a cluster of this program's own"
        )


def described_environment(asked: Any, made_of: Any = None) -> dict[str, Any]:
    """What the daemon is told of the environment of a task or actor: the one it is made in, with its own on top.

    `made_of`: the function or the class, where it is of this language.
    """
    merged = environments.merge(job_environment, _environment.settled(asked) if asked else None)
    return _environment.described(merged, *(driver_side or _environment.driver_side()), made_of)


def address_info() -> dict[str, Any]:
    """Facts of the connection there is, as `init` returns them."""
    return _context.address_info if _context is not None else _address_info(dict(_core.context()))


def _address_info(info: dict[str, Any]) -> dict[str, Any]:
    host = info.get("node_ip") or info["address"].rpartition(":")[0] or "127.0.0.1"
    return {
        "node_ip_address": host,
        "redis_address": None,
        "object_store_address": None,
        "raylet_socket_name": str(Path(info["session"]) / "socket"),
        "webui_url": "",
        "session_dir": info["session"],
        "metrics_export_port": None,
        "gcs_address": info["address"],
        "address": info["address"],
        "dashboard_agent_listen_port": None,
        "node_id": info["node_id"],
    }


def _attach(session: _Session, options: InitOptions) -> dict[str, Any]:
    directory, address, token, ip = session
    return {**_greet(_core.connect_session(directory, address), token, options), "node_ip": ip}


def _start_private(options: InitOptions) -> dict[str, Any]:
    global _daemon_pid
    resources: dict[str, float] = dict(options.resources)
    if options.num_cpus is not None:
        resources["CPU"] = options.num_cpus
    if options.num_gpus is not None:
        resources["GPU"] = options.num_gpus
    if options.memory is not None:
        resources["memory"] = options.memory
    machine = {
        "resources": resources,
        "labels": options.labels,
        "object_store_memory": options.object_store_memory,
        "spill_directory": options.object_spilling_directory,
        "device_isolation": options.device_isolation,
        "device_violations": options.device_violations,
        "gpu_memory": options.gpu_memory,
        "gpu_memory_enforcement": options.gpu_memory_enforcement,
        "gpu_memory_library": options.gpu_memory_library,
        "node_name": options.node_name,
    }
    config: dict[str, Any] = {"machine": machine, "interpreter": sys.executable, "temp_dir": options.temp_dir}
    if options.include_dashboard or (options.include_dashboard is None and options.dashboard_port is not None):
        # A program's own cluster answers on this machine only.
        config["head"] = {"dashboard": {"port": options.dashboard_port}}
    binary = _cli.native_binary()
    variables = {**_cli.interpreter_variable(), **_switches.variables(options.system_config)}
    try:
        descriptor, _daemon_pid = _core.start_daemon(binary, json.dumps(config), variables)
    except OSError as error:
        raise RuntimeError(
            f"the daemon {binary} could not be started: {error}. Reinstall oxiray, or name its binary with OXIRAY_BINARY"
        ) from error
    return _greet(descriptor, "", options)


def _greet(descriptor: int, token: str, options: InitOptions) -> dict[str, Any]:
    return _core.connect(
        descriptor=descriptor,
        token=token,
        interpreter=sys.executable,
        setup=_setup(options.logging_config, options.tracing_hook),
        namespace=options.namespace or "",
        wants_logs=options.log_to_driver,
        environment=described_environment(None),
        entrypoint=shlex.join(sys.orig_argv),
        metadata=options.job_metadata,
        runtime_env=_environment.as_json(job_environment) if job_environment else "",
    )


def _setup(logging_config: dict[str, Any] | None, tracing_hook: Any) -> bytes:
    """Where workers are to work and to import from, as this program does, how they are to log, and whether calls are spans."""
    interpreter, paths, here = _environment.driver_side()
    libraries = _environment.libraries(paths)
    told = {"sys_path": paths, "libraries": libraries, "directory": here, "interpreter": interpreter, "logging": logging_config}
    told |= {"python": platform.python_version(), "tracing": tracing_hook}
    # A hook that is no name may be a function of the program itself.
    return pickle.dumps(told) if tracing_hook is None else _pickling.dumps(told)


def shutdown(_exiting_interpreter: bool = False, *, wait_for_processes: bool = False) -> None:
    """Ends the connection, and with it a private cluster, whose daemon has ended when this returns, whatever `wait_for_processes`
    says. Does nothing if there is no connection."""
    global generation, _context
    with _lock:
        if not _core.is_connected() or _core.context()["is_worker"]:
            return
        generation += 1
        _context = None
        _core.say_goodbye(_last_error() if _exiting_interpreter else "")
        _events.start()
        _events.finish(_LAST_NEWS_LIMIT)
        _core.disconnect()
        _reap_daemon()


def _last_error() -> str:
    """The exception that ends this program, in one line; empty where none does."""
    error = getattr(sys, "last_value", None)
    # A prompt shows errors of lines that were typed, and goes on.
    if error is None or hasattr(sys, "ps1"):
        return ""
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    return text.splitlines()[-1][:_LAST_ERROR_CHARACTERS_MAX] if text else type(error).__name__


def _reap_daemon() -> None:
    """Waits for the private daemon to end, as it does with its connection; one that hangs is ended."""
    global _daemon_pid
    if _daemon_pid is None:
        return
    pid, _daemon_pid = _daemon_pid, None
    _core.await_daemon(pid)


def is_initialized() -> bool:
    """Returns whether this process is connected to a cluster."""
    return _core.is_connected()


def ensure() -> None:
    """Connects where that was not done yet, as Ray does on first use."""
    if not _core.is_connected():
        if os.environ.get("RAY_ENABLE_AUTO_CONNECT", "1") in ("0", "false"):
            raise RuntimeError(
                "this process is not connected, and RAY_ENABLE_AUTO_CONNECT=0 forbids connecting on first use: call init()"
            )
        with _lock:
            if not _core.is_connected():
                init()


def ensure_at(address: str | None) -> None:
    """Connects to the cluster at `address` where that was not done yet. Raises `ValueError` where this process is connected to another."""
    if not _core.is_connected():
        if address is None:
            ensure()
        else:
            init(address)
        return
    here = str(_core.context()["address"])
    if address is not None and not _means(address, here):
        raise ValueError(
            f"address={address!r} was asked about, and this process is connected to {here}: leave the address out, or ask in a "
            "process of its own"
        )


def _means(address: str, here: str) -> bool:
    """Whether `address` may be that of the cluster that this process is connected to, whose own is `here`."""
    # The head's address is the one that other machines know; this machine's other names lead to it too.
    (host, _, port), (own_host, _, own_port) = address.removeprefix(_init_options.CLIENT_SCHEME).partition(":"), here.partition(":")
    ports = {own_port, "", str(_init_options.CLIENT_PORT)} if address.startswith(_init_options.CLIENT_SCHEME) else {own_port}
    return address in ("auto", "local") or (host in ("localhost", "127.0.0.1", "0.0.0.0", own_host) and port in ports)


def _after_fork() -> None:
    global _daemon_pid, generation, _context, _lock
    # Another thread of the parent may have held it, and is not here to release it.
    _lock = threading.RLock()
    if _core.is_connected():
        _daemon_pid = None
        generation += 1
        _context = None
        _events.forget()
        _core._after_fork()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(shutdown, True)
