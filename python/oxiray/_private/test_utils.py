"""What tests of programs take from Ray: processes and actors that are waited for. For compatibility."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from oxiray import _api, _job_http, _missing, _subscribers
from oxiray._common.network_utils import find_free_port, parse_address
from oxiray._common.test_utils import (
    Semaphore,
    SignalActor,
    async_wait_for_condition,
    is_named_tuple,
    run_string_as_driver,
    wait_for_condition,
)
from oxiray._resource_killers import NodeKillerBase, RayletKiller, ResourceKillerActor, get_and_run_resource_killer
from oxiray.exceptions import RayActorError
from oxiray.runtime_context import get_runtime_context
from oxiray.util.state import list_actors

_NO_REDIS = (
    "{}() is for tests of clusters that keep their state in Redis. Oxiray's head keeps its own, in the session's folder, and "
    "would not use it: unset TEST_EXTERNAL_REDIS, and leave out tests that take an external Redis"
)
_NO_TLS_SWITCH = (
    "{}() is for tests that switch TLS on by RAY_USE_TLS, which switches nothing here: nodes of an Oxiray cluster always speak TLS "
    "among each other, with certificates of their own. Leave out tests that ask for it"
)


def run_string_as_driver_nonblocking(
    driver_script: str, env: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Starts a program in a process of its own, whose standard output and error are pipes."""
    script = "\n".join(["import os", "import sys", driver_script])
    started = subprocess.Popen(
        [sys.executable, "-"],
        env=os.environ if env is None else env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert started.stdin is not None, "it is a pipe"
    started.stdin.write(script.encode())
    started.stdin.close()
    return started


def run_string_as_driver_stdout_stderr(
    driver_script: str, env: dict[str, str] | None = None, encode: str = "utf-8"
) -> tuple[str, str]:
    """Runs a program in a process of its own: what it printed to standard output, and to standard error."""
    started = run_string_as_driver_nonblocking(driver_script, env)
    # It was closed when the script was written.
    started.stdin = None
    out, error = (part.decode(encode, "replace") for part in started.communicate())
    if started.returncode:
        raise subprocess.CalledProcessError(started.returncode, started.args, output=out, stderr=error)
    return out, error


def _is_alive(pid: int) -> bool:
    try:
        # A zombie has ended: only its parent has not heard of that.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _children_of(pid: int) -> list[int]:
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children += [int(child) for child in task.read_text().split()]
    return [child for child in children if _is_alive(child)]


def wait_for_pid_to_exit(pid: int, timeout: float = 20) -> None:
    """Waits until the process has ended. Raises `RuntimeError` past `timeout` seconds."""
    wait_for_condition(lambda: not _is_alive(pid), timeout=timeout)


def wait_for_children_of_pid(pid: int, num_children: int = 1, timeout: float = 20) -> None:
    """Waits until the process has so many children. Raises `RuntimeError` past `timeout` seconds."""
    wait_for_condition(lambda: len(_children_of(pid)) >= num_children, timeout=timeout)


def wait_for_children_of_pid_to_exit(pid: int, timeout: float = 20) -> None:
    """Waits until the children that the process has now have ended. Raises `RuntimeError` past `timeout` seconds."""
    children = _children_of(pid)
    wait_for_condition(lambda: not any(map(_is_alive, children)), timeout=timeout)


def check_call_subprocess(argv: list[str], capture_stdout: bool = False, capture_stderr: bool = False) -> bytes:
    """Runs a command; what it printed, where that is captured. Raises `subprocess.CalledProcessError` where it fails."""
    ran = subprocess.run(
        argv,
        stdout=subprocess.PIPE if capture_stdout else None,
        stderr=(subprocess.STDOUT if capture_stdout else subprocess.PIPE) if capture_stderr else None,
        check=True,
    )
    return ran.stdout or ran.stderr or b""


def check_call_ray(args: list[str], capture_stdout: bool = False, capture_stderr: bool = False) -> bytes:
    """Runs the command of this package with these arguments."""
    return check_call_subprocess([sys.executable, "-m", "oxiray._cli", *args], capture_stdout, capture_stderr)


def wait_for_num_actors(num_actors: int, state: str | None = None, timeout: float = 10) -> None:
    """Waits until there are so many actors, in that state where one is given. Raises `RuntimeError` past `timeout` seconds."""
    filters = [] if state is None else [("state", "=", state)]
    wait_for_condition(lambda: len(list_actors(filters=filters, limit=10_000)) >= num_actors, timeout=timeout)


def kill_actor_and_wait_for_failure(actor: Any, timeout: float = 10, retry_interval_ms: float = 100) -> None:
    """Kills the process of an actor, and waits until calls fail. Raises `RuntimeError` past `timeout` seconds."""
    pid = _api.get(actor.__ray_call__.remote(lambda _: os.getpid()))
    os.kill(pid, 9)
    wait_for_pid_to_exit(pid, timeout)

    def fails() -> bool:
        try:
            _api.get(actor.__ray_ready__.remote(), timeout=timeout)
        except RayActorError:
            return True
        return False

    wait_for_condition(fails, timeout=timeout, retry_interval_ms=retry_interval_ms)


def wait_for_assertion(
    assertion_predictor: Callable[..., Any],
    timeout: float = 10,
    retry_interval_ms: float = 100,
    raise_exceptions: bool = False,
    **kwargs: Any,
) -> None:
    """Calls `assertion_predictor(**kwargs)` again and again until it raises nothing; past `timeout` seconds what it raises."""

    def holds() -> bool:
        assertion_predictor(**kwargs)
        return True

    try:
        wait_for_condition(holds, timeout, retry_interval_ms, raise_exceptions)
    except RuntimeError:
        assertion_predictor(**kwargs)


def wait_until_succeeded_without_exception(
    func: Callable[..., Any],
    exceptions: type[BaseException] | tuple[type[BaseException], ...],
    *args: Any,
    timeout_ms: float = 1000,
    retry_interval_ms: float = 100,
    raise_last_ex: bool = False,
) -> bool:
    """Calls `func(*args)` until it raises none of `exceptions`; whether it came to that in time."""
    deadline = time.monotonic() + timeout_ms / 1000
    while True:
        try:
            func(*args)
            return True
        except exceptions:
            if time.monotonic() > deadline:
                if raise_last_ex:
                    raise
                return False
            time.sleep(retry_interval_ms / 1000)


def same_elements(elems_a: Any, elems_b: Any) -> bool:
    """Whether both have the same elements, in any order."""
    rest = list(elems_b)
    for element in elems_a:
        if element not in rest:
            return False
        rest.remove(element)
    return not rest


def put_object(obj: Any, use_ray_put: bool) -> Any:
    """A reference to `obj`: put, or returned by a task."""
    if use_ray_put:
        return _api.put(obj)
    return _api.remote(lambda value: value).remote(obj)


def get_other_nodes(cluster: Any, exclude_head: bool = False) -> list[Any]:
    """The nodes of a `Cluster` that this program is not connected to; without its head where that is wanted."""
    here = get_runtime_context().get_node_id()
    return [
        node
        for node in cluster.list_all_nodes()
        if node.node_id != here and not (exclude_head and node is cluster.head_node)
    ]


def get_non_head_nodes(cluster: Any) -> list[Any]:
    """The nodes of a `Cluster` besides its head."""
    return [node for node in cluster.list_all_nodes() if node is not cluster.head_node]


def is_placement_group_removed(pg: Any) -> bool:
    """Whether the placement group was removed."""
    from oxiray.util import placement_group_table

    known = placement_group_table(pg)
    return "state" not in known or known["state"] == "REMOVED"


def placement_group_assert_no_leak(pgs_created: list[Any]) -> None:
    """Removes these placement groups, and waits until none is left and all that nodes offer is free, but for memory.

    Raises `RuntimeError` where it does not come to that.
    """
    from oxiray.util import placement_group_table, remove_placement_group

    for group in pgs_created:
        remove_placement_group(group)
    wait_for_condition(lambda: all(group["state"] == "REMOVED" for group in placement_group_table().values()))
    offered = {name: amount for name, amount in _api.cluster_resources().items() if name not in ("memory", "object_store_memory")}
    wait_for_condition(lambda: {name: _api.available_resources().get(name) for name in offered} == offered)


def no_resource_leaks_excluding_node_resources() -> bool:
    """Whether all that nodes offer is free, but for the resources that name a node."""
    free = _api.available_resources()
    return all(free.get(name) == amount for name, amount in _api.cluster_resources().items() if "node" not in name)


def object_memory_usage() -> float:
    """How much of the nodes' memory for objects is in use, in bytes: of each node, rounded up to 1/256 of what it has."""
    return float(sum(node["store_used"] for node in _api.describe_nodes() if node.get("alive", True)))


@contextlib.contextmanager
def chdir(d: str) -> Iterator[None]:
    """Works in the folder `d` within the block."""
    before = os.getcwd()
    os.chdir(d)
    try:
        yield
    finally:
        os.chdir(before)


def recursive_fnmatch(dirpath: str, pattern: str) -> list[str]:
    """The files below a folder whose names fit the pattern."""
    return [str(path) for path in Path(dirpath).rglob("*") if path.is_file() and fnmatch.fnmatch(path.name, pattern)]


def client_test_enabled() -> bool:
    """Whether tests go through Ray Client: never."""
    return False


def get_current_unused_port() -> int:
    """A TCP port that nobody listened at a moment ago."""
    return find_free_port()


def generate_system_config_map(**kwargs: Any) -> dict[str, Any]:
    """Keywords of `init` that set these switches."""
    return {"_system_config": kwargs}


def external_redis_test_enabled() -> bool:
    """Whether the environment asks for tests with a Redis of their own (TEST_EXTERNAL_REDIS=1), which none can start here."""
    return os.environ.get("TEST_EXTERNAL_REDIS") == "1"


def rocksdb_gcs_test_enabled() -> bool:
    """Whether the environment asks for tests of a head that keeps its state in RocksDB (TEST_GCS_ROCKSDB=1)."""
    return os.environ.get("TEST_GCS_ROCKSDB") == "1"


def persistent_gcs_test_enabled() -> bool:
    """Whether the environment asks for either of the two."""
    return external_redis_test_enabled() or rocksdb_gcs_test_enabled()


def redis_replicas() -> int:
    """How many Redis servers such a test has, of TEST_EXTERNAL_REDIS_REPLICAS."""
    return int(os.environ.get("TEST_EXTERNAL_REDIS_REPLICAS", "1"))


def redis_sentinel_replicas() -> int:
    """How many such a test has behind a sentinel, of TEST_EXTERNAL_REDIS_SENTINEL_REPLICAS."""
    return int(os.environ.get("TEST_EXTERNAL_REDIS_SENTINEL_REPLICAS", "2"))


def start_redis_instance(*_: Any, **__: Any) -> NoReturn:
    """Raises `NotImplementedError`: no cluster of Oxiray's would use the server."""
    raise NotImplementedError(_NO_REDIS.format("start_redis_instance"))


def start_redis_sentinel_instance(*_: Any, **__: Any) -> NoReturn:
    """Raises `NotImplementedError`: no cluster of Oxiray's would use the server."""
    raise NotImplementedError(_NO_REDIS.format("start_redis_sentinel_instance"))


def get_redis_cli(port: int | str, enable_tls: bool) -> NoReturn:
    """Raises `NotImplementedError`: there is no server of a test that it could connect to."""
    raise NotImplementedError(_NO_REDIS.format("get_redis_cli"))


def setup_tls() -> NoReturn:
    """Raises `NotImplementedError`: what it would set switches nothing."""
    raise NotImplementedError(_NO_TLS_SWITCH.format("setup_tls"))


def teardown_tls(key_filepath: str, cert_filepath: str, temp_dir: str) -> NoReturn:
    """Raises `NotImplementedError`: `setup_tls` made nothing that could be undone."""
    raise NotImplementedError(_NO_TLS_SWITCH.format("teardown_tls"))


def reset_autoscaler_v2_enabled_cache() -> None:
    """Has the next question which of Ray's autoscalers runs be asked anew: no answer is kept, as there is one autoscaler."""


def init_error_pubsub() -> _subscribers.GcsErrorSubscriber:
    """A subscriber to the notices that this program is given from now on; `close()` ends it."""
    subscriber = _subscribers.GcsErrorSubscriber()
    subscriber.subscribe()
    return subscriber


def get_error_message(subscriber: Any, num: float = 1e6, error_type: str | None = None, timeout: float = 20) -> list[dict[str, Any]]:
    """Up to `num` notices that come within `timeout` seconds. Raises `ValueError` for a type of Ray's, which notices have not."""
    if error_type not in (None, "notice"):
        raise ValueError(f"error_type={error_type!r}: Oxiray's notices are not told apart by Ray's types. Leave it out, and look at error_message")
    return _subscribers.pieces(lambda rest: subscriber.poll(timeout=rest)[1], num, timeout, lambda _: True)


def init_log_pubsub() -> _subscribers.GcsLogSubscriber:
    """A subscriber to the lines that workers of this program print from now on; `close()` ends it."""
    subscriber = _subscribers.GcsLogSubscriber()
    subscriber.subscribe()
    return subscriber


def get_log_batch(
    subscriber: Any,
    num: float,
    timeout: float = 20,
    job_id: str | None = None,
    matcher: Callable[[dict[str, Any]], bool] | None = None,
) -> list[dict[str, Any]]:
    """Up to `num` pieces of what workers print within `timeout` seconds, of this job, and of which `matcher` is true."""

    def fits(piece: dict[str, Any]) -> bool:
        return job_id in (None, piece["job"]) and (matcher is None or matcher(piece))

    return _subscribers.pieces(lambda rest: subscriber.poll(timeout=rest), num, timeout, fits)


def get_log_data(
    subscriber: Any,
    num: float = 1e6,
    timeout: float = 20,
    job_id: str | None = None,
    matcher: Callable[[str], bool] | None = None,
) -> list[dict[str, Any]]:
    """As `get_log_batch`, with a `matcher` that is asked of each line: a piece counts where it is true of one."""

    def fits(piece: dict[str, Any]) -> bool:
        return matcher is None or any(map(matcher, piece["lines"]))

    return get_log_batch(subscriber, num, timeout, job_id, fits)


def get_log_message(
    subscriber: Any,
    num: float = 1e6,
    timeout: float = 20,
    job_id: str | None = None,
    matcher: Callable[[str], bool] | None = None,
) -> list[list[str]]:
    """The lines of each such piece."""
    return [piece["lines"] for piece in get_log_data(subscriber, num, timeout, job_id, matcher)]


def get_log_sources(
    subscriber: Any,
    num: float = 1e6,
    timeout: float = 20,
    job_id: str | None = None,
    matcher: Callable[[str], bool] | None = None,
) -> set[int]:
    """The processes that printed such pieces."""
    return {piece["pid"] for piece in get_log_data(subscriber, num, timeout, job_id, matcher)}


def wait_until_server_available(address: str, timeout_ms: float = 5000, retry_interval_ms: float = 100) -> bool:
    """Whether somebody listens at `host:port`, waited for up to `timeout_ms` milliseconds."""
    parts = parse_address(address)
    if parts is None:
        raise ValueError(f"{address!r} is no address of a server: write `host:port`")
    host, port = parts
    deadline = time.monotonic() + timeout_ms / 1000
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return True
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(retry_interval_ms / 1000)


def format_web_url(url: str) -> str:
    """The URL of a dashboard's address, with `127.0.0.1` for `localhost`."""
    without_scheme = url.removeprefix("http://").replace("localhost", "127.0.0.1")
    return f"http://{without_scheme}"


def safe_write_to_results_json(
    result: dict[str, Any], default_file_name: str = "/tmp/release_test_output.json", env_var: str = "TEST_OUTPUT_JSON"
) -> None:
    """Writes a result to the file that the variable `env_var` names: whole, or not at all."""
    file = Path(os.environ.get(env_var, default_file_name))
    beside = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    beside.write_text(json.dumps(result))
    beside.replace(file)


def get_actor_node_id(actor_handle: Any) -> str:
    """The node that an actor runs on."""
    found: str = _api.get(actor_handle.__ray_call__.remote(lambda _: get_runtime_context().get_node_id()))
    return found


def request_with_auth_token(method: str, url: str, **kwargs: Any) -> Any:
    """`requests.request` with the token of the dashboard that is asked, where there is one and the caller gives none."""
    import requests

    kwargs["headers"] = _job_http.headers(url, kwargs.get("headers"), None)
    return requests.request(method, url, **kwargs)


__all__ = [
    "NodeKillerBase",
    "RayletKiller",
    "ResourceKillerActor",
    "Semaphore",
    "SignalActor",
    "async_wait_for_condition",
    "chdir",
    "check_call_ray",
    "check_call_subprocess",
    "client_test_enabled",
    "external_redis_test_enabled",
    "find_free_port",
    "format_web_url",
    "generate_system_config_map",
    "get_actor_node_id",
    "get_and_run_resource_killer",
    "get_current_unused_port",
    "get_error_message",
    "get_log_batch",
    "get_log_data",
    "get_log_message",
    "get_log_sources",
    "get_non_head_nodes",
    "get_other_nodes",
    "get_redis_cli",
    "init_error_pubsub",
    "init_log_pubsub",
    "is_named_tuple",
    "is_placement_group_removed",
    "kill_actor_and_wait_for_failure",
    "no_resource_leaks_excluding_node_resources",
    "object_memory_usage",
    "persistent_gcs_test_enabled",
    "placement_group_assert_no_leak",
    "put_object",
    "recursive_fnmatch",
    "redis_replicas",
    "redis_sentinel_replicas",
    "request_with_auth_token",
    "reset_autoscaler_v2_enabled_cache",
    "rocksdb_gcs_test_enabled",
    "run_string_as_driver",
    "run_string_as_driver_nonblocking",
    "run_string_as_driver_stdout_stderr",
    "safe_write_to_results_json",
    "same_elements",
    "setup_tls",
    "start_redis_instance",
    "start_redis_sentinel_instance",
    "teardown_tls",
    "wait_for_assertion",
    "wait_for_children_of_pid",
    "wait_for_children_of_pid_to_exit",
    "wait_for_condition",
    "wait_for_num_actors",
    "wait_for_pid_to_exit",
    "wait_until_server_available",
    "wait_until_succeeded_without_exception",
]

__getattr__ = _missing.attributes(__name__)
