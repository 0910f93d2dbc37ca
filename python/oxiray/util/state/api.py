"""Questions about what the cluster runs and ran. The daemon answers them; rows of tasks come from their processes."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import subprocess
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from oxiray import _cli, _core, _missing, _session
from oxiray.exceptions import GetTimeoutError
from oxiray.util.state.common import (
    DEFAULT_LIMIT,
    DEFAULT_RPC_TIMEOUT,
    SCHEMAS,
    ActorState as ActorState,
    ClusterEventState as ClusterEventState,
    DriverInfo,
    GetApiOptions,
    JobState as JobState,
    ListApiOptions,
    NodeState as NodeState,
    ObjectState as ObjectState,
    PlacementGroupState as PlacementGroupState,
    RuntimeEnvState as RuntimeEnvState,
    StateResource,
    SummaryApiOptions,
    SummaryResource,
    TaskState as TaskState,
    WorkerState as WorkerState,
)
from oxiray.util.state._logs import get_log as get_log, list_logs as list_logs
from oxiray.util.state.exception import RayStateApiException, ServerUnavailable

logger = logging.getLogger("ray")

Filter = tuple[str, str, Any]

#: Parts of its timeout after which a question that `_explain` is asked of is told to wait.
_TOLD_AFTER = (1 / 8, 1 / 4, 1 / 2)

#: The column that names a row of its kind.
_IDENTIFIERS = {
    "actors": "actor_id",
    "jobs": "job_id",
    "nodes": "node_id",
    "objects": "object_id",
    "placement_groups": "placement_group_id",
    "tasks": "task_id",
    "workers": "worker_id",
}


def _connect(address: str | None) -> None:
    if _core.is_connected():
        here = _core.context()["address"]
        if address not in (None, "auto", here):
            raise ServerUnavailable(
                f"address={address!r} was asked about, and this process is connected to {here}: leave the address out, or "
                "ask with `oxiray list --address`"
            )
        return
    if address is None:
        return _session.ensure()
    try:
        _session.init(address=address)
    except ConnectionError as error:
        raise ServerUnavailable(str(error)) from error


def _checked(filters: Sequence[Filter] | None) -> list[tuple[str, bool, str]]:
    if filters is not None and not isinstance(filters, (list, tuple)):
        raise ValueError(f"filters are a list of (key, '=' or '!=', value), and {filters!r} was given")
    checked = []
    for one in filters or ():
        if not isinstance(one, (list, tuple)) or len(one) != 3:
            raise ValueError(f"a filter is (key, '=' or '!=', value), and {one!r} was given")
        key, predicate, value = one
        if predicate not in ("=", "!="):
            raise ValueError(f"Unsupported filter predicate {predicate} is given. Available predicates: =, !=. It is that of {one!r}")
        checked.append((str(key), predicate == "!=", str(value)))
    return checked


class _Patience:
    """How long is left for one call of the API, which may ask more than one question; it begins with the first.

    With `explains`, the logger "ray" says when an answer is long in coming, and a warning how many rows were left out.
    """

    def __init__(self, timeout: float, explains: bool = False) -> None:
        is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
        if not is_number or math.isnan(timeout) or timeout <= 0:
            raise ValueError(f"timeout={timeout!r}: a timeout is a number of seconds above 0")
        self.timeout = timeout
        self.explains = explains
        self._until: float | None = None

    def left(self) -> float | None:
        """The seconds that are left; None for no end."""
        if math.isinf(self.timeout):
            return None
        if self._until is None:
            self._until = time.monotonic() + self.timeout
        return max(0.0, self._until - time.monotonic())

    @contextlib.contextmanager
    def told(self, kind: str) -> Iterator[None]:
        """Around the wait for an answer."""
        timers = []
        if self.explains and not math.isinf(self.timeout):
            for part in _TOLD_AFTER:
                after = part * self.timeout
                text = ("%.2f of %s seconds have gone by, and the question for %s is not answered", after, self.timeout, kind)
                timers.append(threading.Timer(after, logger.info, text))
        for timer in timers:
            timer.daemon = True
            timer.start()
        try:
            yield
        finally:
            for timer in timers:
                timer.cancel()


def _look(
    kind: str,
    filters: list[tuple[str, bool, str]],
    limit: int,
    *,
    patience: _Patience | None = None,
    detail: bool = False,
    summary: bool = False,
    must_be_whole: bool = False,
) -> Any:
    try:
        with contextlib.nullcontext() if patience is None else patience.told(kind):
            told, total, missing = _core.look(kind, filters, limit, detail, summary, patience and patience.left())
    except GetTimeoutError:
        assert patience is not None, "only a wait with a timeout ends by it"
        raise ServerUnavailable(
            f"the question for {kind} was given up: the cluster did not answer within timeout={patience.timeout} seconds; "
            "ask with a longer one, and see with `oxiray status` whether the head is well"
        ) from None
    if missing and must_be_whole:
        raise RayStateApiException(
            f"Failed to retrieve all {kind} from the cluster because of partial failures: {missing}; or take what there is, "
            "with raise_on_missing_output=False"
        )
    if missing:
        warnings.warn(f"not all {kind} are told: {missing}", stacklevel=4)
    if patience is not None and patience.explains and isinstance(told, list) and len(told) < total:
        warnings.warn(f"{len(told)} of {total} {kind} are told: ask with a higher limit, or with filters", stacklevel=4)
    return told


def _rows(
    kind: str,
    address: str | None,
    filters: Sequence[Filter] | None,
    limit: int,
    detail: bool,
    patience: _Patience,
    must_be_whole: bool = False,
) -> list[Any]:
    if not isinstance(limit, int) or limit < 1:
        raise ValueError(f"limit={limit!r}: a limit is a whole number of rows from 1 on")
    wanted = _checked(filters)
    _connect(address)
    if kind == "cluster_events":
        return _events(wanted, limit, detail, patience)
    rows = _look(
        kind, wanted, min(limit, 2**32 - 1), patience=patience, detail=detail, must_be_whole=must_be_whole
    )
    schema = SCHEMAS[kind]
    if kind == "jobs":
        rows = [_job(row) for row in rows]
    if kind == "placement_groups" and detail:
        for row in rows:
            row["bundles"] = [_bundle(row, index) for index in range(len(row["bundles"] or ()))]
    return [schema(**row) for row in rows]


def _job(row: dict[str, Any]) -> dict[str, Any]:
    from oxiray.job_submission import JobStatus, JobType

    # A submitted job has none before its entrypoint connects.
    info = DriverInfo(**row["driver_info"]) if row["driver_info"] else None
    return row | {"driver_info": info, "type": JobType(row["type"]), "status": JobStatus(row["status"])}


def _events(
    filters: list[tuple[str, bool, str]], limit: int, detail: bool, patience: _Patience
) -> list[ClusterEventState]:
    """The last events that the head remembers, as the native command tells them."""
    command = [str(_cli.native_binary()), "list", "events", f"--address={_core.context()['address']}", "--format=json"]
    command.append(f"--limit={min(limit, 2**32 - 1)}")
    if not math.isinf(patience.timeout):
        command.append(f"--timeout={math.ceil(patience.timeout)}")
    command += [f"--filter={key}{'!=' if differs else '='}{value}" for key, differs, value in filters]
    with patience.told("cluster_events"):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RayStateApiException(done.stderr.strip().removeprefix("error: "))
    rows = json.loads(done.stdout)
    return [ClusterEventState(**(row if detail else row | {"custom_fields": None})) for row in rows]


def _bundle(group: dict[str, Any], index: int) -> dict[str, Any]:
    """A bundle of a group, in the fields that Ray tells of it, and with its devices."""
    bundle = group["bundles"][index]
    return {
        "bundle_id": {"placement_group_id": group["placement_group_id"], "bundle_index": index},
        "unit_resources": bundle["resources"],
        "node_id": bundle["node_id"],
        "label_selector": bundle.get("label_selector") or {},
        "devices": bundle["devices"],
    }


def _one(kind: str, identifier: Any, address: str | None, patience: _Patience) -> Any:
    if not isinstance(identifier, str):
        raise TypeError(f"{_IDENTIFIERS[kind]} is text of hexadecimal digits, and {identifier!r} was given")
    try:
        bytes.fromhex(identifier)
    except ValueError:
        raise RayStateApiException(f"{identifier!r} is no {_IDENTIFIERS[kind]}: it has to be hexadecimal digits") from None
    return _rows(kind, address, [(_IDENTIFIERS[kind], "=", identifier)], DEFAULT_LIMIT, True, patience)


def _first(rows: list[Any]) -> Any:
    return rows[0] if rows else None


def _lister(kind: str, words: str) -> Any:
    def list_rows(
        address: str | None = None,
        filters: list[Filter] | None = None,
        limit: int = DEFAULT_LIMIT,
        timeout: float = DEFAULT_RPC_TIMEOUT,
        detail: bool = False,
        raise_on_missing_output: bool = True,
        _explain: bool = False,
    ) -> list[Any]:
        return _rows(kind, address, filters, limit, detail, _Patience(timeout, _explain), raise_on_missing_output)

    list_rows.__name__ = list_rows.__qualname__ = f"list_{kind}"
    list_rows.__doc__ = f"""{words}: those that fit all `filters`, at most `limit`; with `detail`, every field.

    Where a process does not answer in time, RayStateApiException says so; with `raise_on_missing_output=False` that is a
    warning, and the rest is returned. Where the cluster does not answer within `timeout` seconds, ServerUnavailable is raised.
    With `_explain`, a warning says how many rows the limit left out, and the logger "ray" when the answer is long in coming.
    """
    return list_rows


list_actors = _lister("actors", "Actors, living and lately dead")
list_jobs = _lister("jobs", "Jobs: programs that are or were connected")
list_nodes = _lister("nodes", "Machines")
list_objects = _lister("objects", "References to objects")
list_placement_groups = _lister("placement_groups", "Placement groups")
list_runtime_envs = _lister("runtime_envs", "Runtime environments in use")
list_tasks = _lister("tasks", "Tasks and actors' calls under way, and the last thousand of each process that ended")
list_workers = _lister("workers", "Workers and drivers")
list_cluster_events = _lister(
    "cluster_events", "What happened to nodes, devices, jobs and the head, the last of what the head remembers"
)


def get_actor(
    id: str, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, _explain: bool = False
) -> ActorState | None:
    """The actor of this identifier; None where there is none."""
    return _first(_one("actors", id, address, _Patience(timeout, _explain)))


def get_job(
    id: str, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, _explain: bool = False
) -> JobState | None:
    """The job of this identifier, or of this submission id; None where there is none."""
    patience = _Patience(timeout, _explain)
    submitted = [("submission_id", "=", id)]
    if isinstance(id, str) and (found := _rows("jobs", address, submitted, DEFAULT_LIMIT, True, patience)):
        return _first(found)
    return _first(_one("jobs", id, address, patience))


def get_node(
    id: str, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, _explain: bool = False
) -> NodeState | None:
    """The machine of this identifier; None where there is none."""
    return _first(_one("nodes", id, address, _Patience(timeout, _explain)))


def get_objects(
    id: str, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, _explain: bool = False
) -> list[ObjectState]:
    """Every reference to the object of this identifier."""
    return list(_one("objects", id, address, _Patience(timeout, _explain)))


def get_placement_group(
    id: str, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, _explain: bool = False
) -> PlacementGroupState | None:
    """The placement group of this identifier; None where there is none."""
    return _first(_one("placement_groups", id, address, _Patience(timeout, _explain)))


def get_task(
    id: Any, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, _explain: bool = False
) -> TaskState | list[TaskState] | None:
    """The task of this identifier, or that makes this object; each of its attempts where it has several."""
    if isinstance(id, _core.ObjectRef):
        id = id.task_id().hex()
    attempts = _one("tasks", id, address, _Patience(timeout, _explain))
    return attempts if len(attempts) > 1 else _first(attempts)


def get_worker(
    id: str, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, _explain: bool = False
) -> WorkerState | None:
    """The process of this identifier; None where there is none."""
    return _first(_one("workers", id, address, _Patience(timeout, _explain)))


def _summary(kind: str, address: str | None, timeout: float, must_be_whole: bool, explains: bool) -> dict[str, Any]:
    patience = _Patience(timeout, explains)
    _connect(address)
    return dict(_look(kind, [], DEFAULT_LIMIT, patience=patience, summary=True, must_be_whole=must_be_whole))


def summarize_actors(
    address: str | None = None,
    timeout: float = DEFAULT_RPC_TIMEOUT,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> dict[str, Any]:
    """How many actors there are of each class, by state."""
    return _summary("actors", address, timeout, raise_on_missing_output, _explain)


def summarize_objects(
    address: str | None = None,
    timeout: float = DEFAULT_RPC_TIMEOUT,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> dict[str, Any]:
    """How many references to objects there are, and how large those are, by where they were made.

    Where that is not recorded all are together; `RAY_record_ref_creation_sites=1` has it recorded.
    """
    return _summary("objects", address, timeout, raise_on_missing_output, _explain)


def summarize_tasks(
    address: str | None = None,
    timeout: float = DEFAULT_RPC_TIMEOUT,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> dict[str, Any]:
    """How many tasks there are of each name, by state."""
    return _summary("tasks", address, timeout, raise_on_missing_output, _explain)


class StateApiClient:
    """Asks one cluster by what is asked for as a value, rather than by function, for compatibility.

    `address` is what `list_actors` and its like take; `cookies` and `headers`, which are for requests to a dashboard, are
    refused unless they are None or empty, with `ValueError`.
    """

    def __init__(
        self, address: str | None = None, cookies: dict[str, Any] | None = None, headers: dict[str, Any] | None = None
    ) -> None:
        if cookies or headers:
            raise ValueError("cookies and headers are for requests to a dashboard, and there is none: leave them out")
        self._address = address

    def list(
        self, resource: StateResource, options: ListApiOptions, raise_on_missing_output: bool, _explain: bool = False
    ) -> Sequence[Any]:
        """The rows of `resource` that fit the options; raises as `list_actors` does."""
        patience = _Patience(options.timeout, _explain)
        kind, limit = resource.value, options.limit
        return _rows(kind, self._address, options.filters, limit, options.detail, patience, raise_on_missing_output)

    def get(
        self, resource: StateResource, id: str, options: GetApiOptions | None, _explain: bool = False
    ) -> Any:
        """The row of this identifier, a list of rows for an object or a task with several attempts, None where there is none."""
        found = _one(resource.value, id, self._address, _Patience((options or GetApiOptions()).timeout, _explain))
        is_list = resource is StateResource.OBJECTS or (resource is StateResource.TASKS and len(found) > 1)
        return found if is_list else _first(found)

    def summary(
        self,
        resource: SummaryResource,
        *,
        options: SummaryApiOptions | None,
        raise_on_missing_output: bool,
        _explain: bool = False,
    ) -> dict[str, Any]:
        """Counts of `resource`; raises as `summarize_tasks` does."""
        timeout = (options or SummaryApiOptions()).timeout
        return _summary(resource.value, self._address, timeout, raise_on_missing_output, _explain)


def timeline() -> list[dict[str, Any]]:
    """What ran when: events of Chrome's trace format, for chrome://tracing or ui.perfetto.dev."""
    _session.ensure()
    rows = _look("timeline", [], 10_000)
    host = _core.context()["address"].rpartition(":")[0]
    return [
        {
            "cat": f"task::{row['name']}",
            "name": row["name"],
            "ph": "X",
            "pid": host,
            "tid": f"worker:{row['worker_id']}",
            "ts": row["start_us"],
            "dur": row["end_us"] - row["start_us"],
            "args": {"task_id": row["task_id"], "state": row["state"], "pid": row["worker_pid"]},
        }
        for row in rows
        if row["start_us"] and row["end_us"]
    ]


__all__ = [
    "StateApiClient",
    "get_actor",
    "get_job",
    "get_log",
    "get_node",
    "get_objects",
    "get_placement_group",
    "get_task",
    "get_worker",
    "list_actors",
    "list_cluster_events",
    "list_jobs",
    "list_logs",
    "list_nodes",
    "list_objects",
    "list_placement_groups",
    "list_runtime_envs",
    "list_tasks",
    "list_workers",
    "summarize_actors",
    "summarize_objects",
    "summarize_tasks",
]

__getattr__ = _missing.attributes(__name__)
