"""The rows that questions about the cluster's state are answered with, with Ray's field names.

A field that only the detailed answer has is None in the others; so is what Oxiray does not record.
"""

from __future__ import annotations

import datetime
import enum
import re
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, Union

from oxiray.util.state.exception import RayStateApiException as RayStateApiException

#: How many rows are returned where nothing is said.
DEFAULT_LIMIT = 100
#: How long an answer is waited for, in seconds.
DEFAULT_RPC_TIMEOUT = 30
#: The most rows that one answer holds.
RAY_MAX_LIMIT_FROM_API_SERVER = 10_000
#: The most rows of one kind that are looked at.
RAY_MAX_LIMIT_FROM_DATA_SOURCE = 10_000
#: How many lines of a log are returned where nothing is said.
DEFAULT_LOG_LIMIT = 1000
#: The name of a downloaded log where nothing is said.
DEFAULT_DOWNLOAD_FILENAME = "file.txt"
#: How the identifier begins that stands for a driver where the task that called is named.
DRIVER_TASK_ID_PREFIX = "f" * 40


class StateSchema:
    """A row; its fields may be asked for by name, as those of a dictionary."""

    @classmethod
    def columns(cls) -> set[str]:
        """The names of the fields."""
        return {field.name for field in fields(cls)}  # type: ignore[arg-type]

    @classmethod
    def list_columns(cls, detail: bool = True) -> list[str]:
        """The names of the fields in their order: all, or without `detail` those that every answer has."""
        found = fields(cls)  # type: ignore[arg-type]
        return [field.name for field in found if detail or field.default is MISSING]

    @classmethod
    def base_columns(cls) -> set[str]:
        """The names of the fields that every answer has."""
        return set(cls.list_columns(detail=False))

    @classmethod
    def detail_columns(cls) -> set[str]:
        """The names of the fields that a detailed answer has."""
        return cls.columns()

    @classmethod
    def filterable_columns(cls) -> set[str]:
        """The names of the fields that a filter may name."""
        return cls.columns()

    @classmethod
    def humanify(cls, state: dict[str, Any]) -> dict[str, Any]:
        """The row `state` with its times and sizes as people read them; what is None stays so."""
        return {
            key: _READABLE[key](value) if key in _READABLE and value is not None else value for key, value in state.items()
        }

    def asdict(self) -> dict[str, Any]:
        """The row as a dictionary."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]

    def get(self, key: str, default: Any = None) -> Any:
        """The field `key`."""
        return getattr(self, key, default)

    def __getitem__(self, key: str) -> Any:
        if key not in self.columns():
            raise KeyError(key)
        return getattr(self, key)


@dataclass
class DriverInfo:
    """The process that a job belongs to."""

    id: str
    node_ip_address: str
    pid: str


@dataclass
class ActorState(StateSchema):
    """An actor."""

    actor_id: str
    class_name: str
    state: str
    job_id: str
    name: str | None
    node_id: str | None
    pid: int | None
    ray_namespace: str | None
    serialized_runtime_env: str | None = None
    required_resources: dict[str, Any] | None = None
    death_cause: dict[str, Any] | None = None
    is_detached: bool | None = None
    placement_group_id: str | None = None
    repr_name: str | None = None
    num_restarts: int | None = None
    num_restarts_due_to_lineage_reconstruction: int | None = None
    num_restarts_due_to_node_preemption: int | None = None
    call_site: str | None = None
    label_selector: dict[str, Any] | None = None
    fallback_strategy: list[Any] | None = None


@dataclass
class PlacementGroupState(StateSchema):
    """A placement group."""

    placement_group_id: str
    name: str
    creator_job_id: str
    state: str
    bundles: list[Any] | None = None
    is_detached: bool | None = None
    stats: dict[str, Any] | None = None
    topology_strategy: dict[str, Any] | None = None
    topology_assignments: dict[str, Any] | None = None


@dataclass
class NodeState(StateSchema):
    """A machine."""

    node_id: str
    node_ip: str
    is_head_node: bool
    state: str
    state_message: str | None
    node_name: str
    resources_total: dict[str, Any]
    labels: dict[str, Any]
    start_time_ms: int | None = None
    end_time_ms: int | None = None


@dataclass
class JobState(StateSchema):
    """A job: one program's stay."""

    #: A `JobType` and a `JobStatus`.
    type: str
    job_id: str | None
    submission_id: str | None
    driver_info: DriverInfo | None
    status: str
    entrypoint: str | None
    message: str | None
    error_type: str | None
    start_time: int | None = None
    end_time: int | None = None
    metadata: dict[str, Any] | None = None
    runtime_env: dict[str, Any] | None = None
    driver_agent_http_address: str | None = None
    driver_node_id: str | None = None
    driver_exit_code: int | None = None


@dataclass
class WorkerState(StateSchema):
    """A process that runs tasks or an actor, or a driver."""

    worker_id: str
    is_alive: bool
    worker_type: str
    exit_type: str | None
    node_id: str
    ip: str
    pid: int
    exit_detail: str | None = None
    worker_launch_time_ms: int | None = None
    worker_launched_time_ms: int | None = None
    start_time_ms: int | None = None
    end_time_ms: int | None = None
    debugger_port: int | None = None
    num_paused_threads: int | None = None


@dataclass
class TaskState(StateSchema):
    """One attempt of a task, of an actor's call, or of the making of an actor."""

    task_id: str
    attempt_number: int
    name: str
    state: str
    job_id: str
    actor_id: str | None
    type: str
    func_or_class_name: str
    parent_task_id: str | None
    node_id: str | None
    worker_id: str | None
    worker_pid: int | None
    error_type: str | None
    language: str | None = None
    required_resources: dict[str, Any] | None = None
    runtime_env_info: dict[str, Any] | None = None
    placement_group_id: str | None = None
    events: list[Any] | None = None
    profiling_data: dict[str, Any] | None = None
    creation_time_ms: int | None = None
    start_time_ms: int | None = None
    end_time_ms: int | None = None
    task_log_info: dict[str, Any] | None = None
    error_message: str | None = None
    is_debugger_paused: bool | None = None
    call_site: str | None = None
    label_selector: dict[str, Any] | None = None
    fallback_strategy: dict[str, Any] | None = None


@dataclass
class ObjectState(StateSchema):
    """A reference to an object."""

    object_id: str
    object_size: int
    task_status: str
    attempt_number: int
    reference_type: str
    call_site: str
    type: str
    pid: int
    ip: str


@dataclass
class RuntimeEnvState(StateSchema):
    """A runtime environment in use."""

    runtime_env: dict[str, Any]
    success: bool
    creation_time_ms: float | None
    node_id: str
    ref_cnt: int | None = None
    error: str | None = None


@dataclass
class ClusterEventState(StateSchema):
    """Something that happened in the cluster; `time` is in UTC."""

    severity: str
    time: str
    source_type: str
    message: str
    event_id: str
    custom_fields: dict[str, Any] | None = None


#: The class of each kind of rows.
SCHEMAS: dict[str, type[StateSchema]] = {
    "actors": ActorState,
    "placement_groups": PlacementGroupState,
    "nodes": NodeState,
    "jobs": JobState,
    "workers": WorkerState,
    "tasks": TaskState,
    "objects": ObjectState,
    "runtime_envs": RuntimeEnvState,
    "cluster_events": ClusterEventState,
}


class StateResource(enum.Enum):
    """What there are lists of, for compatibility."""

    ACTORS = "actors"
    JOBS = "jobs"
    PLACEMENT_GROUPS = "placement_groups"
    NODES = "nodes"
    WORKERS = "workers"
    TASKS = "tasks"
    OBJECTS = "objects"
    RUNTIME_ENVS = "runtime_envs"
    CLUSTER_EVENTS = "cluster_events"


class SummaryResource(enum.Enum):
    """What there are counts of, for compatibility."""

    ACTORS = "actors"
    TASKS = "tasks"
    OBJECTS = "objects"


def _served_within(timeout: float, multiplier: float) -> int:
    """The whole seconds, at least one, within which the cluster is to answer."""
    return max(1, int(timeout * multiplier))


@dataclass
class ListApiOptions:
    """What `StateApiClient.list` is asked with, for compatibility.

    The answer has `timeout` times `server_timeout_multiplier` seconds. Raises `ValueError` for a predicate that is neither
    `=` nor `!=`, and for `exclude_driver=False`, since drivers are no tasks here.
    """

    limit: int = DEFAULT_LIMIT
    timeout: float = DEFAULT_RPC_TIMEOUT
    detail: bool = False
    filters: list[tuple[str, str, Any]] | None = field(default_factory=list)
    exclude_driver: bool = True
    server_timeout_multiplier: float = 0.8

    def __post_init__(self) -> None:
        self.timeout = _served_within(self.timeout, self.server_timeout_multiplier)
        self.filters = list(self.filters or ())
        for _, predicate, _ in self.filters:
            if predicate not in ("=", "!="):
                raise ValueError(f"Unsupported filter predicate {predicate} is given. Available predicates: =, !=.")
        if not self.exclude_driver:
            raise ValueError("exclude_driver=False is not available: drivers are no tasks, list_jobs() and list_workers() name them")

    def has_conflicting_filters(self) -> bool:
        """Whether no row can fit, since one column is to have two values."""
        wanted: dict[str, str] = {}
        equal = [(key.lower(), str(value).lower()) for key, predicate, value in self.filters or () if predicate == "="]
        return any(wanted.setdefault(key, value) != value for key, value in equal)


@dataclass
class GetApiOptions:
    """What `StateApiClient.get` is asked with, for compatibility; the answer has `timeout` times the multiplier seconds."""

    timeout: float = DEFAULT_RPC_TIMEOUT
    server_timeout_multiplier: float = 0.8

    def __post_init__(self) -> None:
        self.timeout = _served_within(self.timeout, self.server_timeout_multiplier)


@dataclass
class SummaryApiOptions:
    """What `StateApiClient.summary` is asked with, for compatibility; `timeout` in seconds.

    Raises `ValueError` for filters, and for a `summary_by` other than "func_name": all rows are counted, by name.
    """

    timeout: float = DEFAULT_RPC_TIMEOUT
    filters: list[tuple[str, str, Any]] | None = field(default_factory=list)
    summary_by: str | None = None

    def __post_init__(self) -> None:
        if self.filters:
            raise ValueError(f"summaries take no filters, and {self.filters!r} was given: count what list_tasks() returns")
        if self.summary_by not in (None, "func_name"):
            raise ValueError(f"summary_by={self.summary_by!r} is not available: rows are counted by 'func_name'")


class Humanify:
    """Figures as people read them, for compatibility."""

    @staticmethod
    def timestamp(x: float) -> str:
        """The moment `x`, in milliseconds, by the clock of this machine."""
        return str(datetime.datetime.fromtimestamp(x / 1000))

    @staticmethod
    def memory(x: float) -> str:
        """`x` bytes in the largest unit that leaves at least one of it."""
        size = float(x)
        for unit in ("B", "KiB", "MiB"):
            if abs(size) < 1024:
                return f"{size:.3f} {unit}"
            size /= 1024
        return f"{size:.3f} GiB"

    @staticmethod
    def duration(x: float) -> str:
        """`x` milliseconds as hours, minutes and seconds."""
        return str(datetime.timedelta(milliseconds=x))

    @staticmethod
    def events(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Copies of the events of a task, with their moments as people read them."""
        return [{**event, "created_ms": Humanify.timestamp(event["created_ms"])} for event in events]

    @staticmethod
    def node_resources(resources: dict[str, Any]) -> dict[str, Any]:
        """A copy of the amounts by resource, with those of memory in units that people read."""
        return {name: Humanify.memory(amount) if "memory" in name else amount for name, amount in resources.items()}


#: What makes the values of a column readable.
_READABLE: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("start_time_ms", "end_time_ms", "creation_time_ms", "start_time", "end_time"), Humanify.timestamp),
    **dict.fromkeys(("worker_launch_time_ms", "worker_launched_time_ms"), Humanify.timestamp),
    "object_size": Humanify.memory,
    "events": Humanify.events,
    "resources_total": Humanify.node_resources,
}


@dataclass
class GetLogOptions:
    """Which log is asked for, for compatibility: of an actor, a task, or a process or file of a node.

    Raises `ValueError` where that names no log.
    """

    timeout: int
    node_id: str | None = None
    node_ip: str | None = None
    media_type: str = "file"
    filename: str | None = None
    download_filename: str = DEFAULT_DOWNLOAD_FILENAME
    actor_id: str | None = None
    task_id: str | None = None
    attempt_number: int = 0
    pid: int | None = None
    lines: int = DEFAULT_LOG_LIMIT
    interval: float | None = None
    suffix: str = "out"
    submission_id: str | None = None

    def __post_init__(self) -> None:
        self.pid = None if self.pid is None else int(self.pid)
        self.interval = None if self.interval is None else float(self.interval)
        self.lines = int(self.lines)
        if self.media_type not in ("file", "stream"):
            raise ValueError(f"Invalid media type: {self.media_type}: it is 'file' or 'stream'")
        if self.interval is not None and self.media_type != "stream":
            raise ValueError(f"interval={self.interval} is for media_type='stream', and it is {self.media_type!r}")
        if self.node_id and self.node_ip:
            raise ValueError(
                "Both node_id and node_ip are given. Only one of them can be provided. "
                f"Given node id: {self.node_id}, given node ip: {self.node_ip}"
            )
        if not (self.actor_id or self.task_id or self.submission_id or self.node_id or self.node_ip):
            raise ValueError(
                "node_id or node_ip must be provided as constructor arguments when no actor or task_id is supplied as arguments"
            )
        if not (self.actor_id or self.task_id or self.submission_id or self.pid or self.filename):
            raise ValueError("a log is that of an actor_id, a task_id, a submission_id, a pid or a filename, and none is given")
        if self.suffix not in ("out", "err"):
            raise ValueError(f"Invalid suffix: {self.suffix}. Must be one of 'out' or 'err'.")


@dataclass
class ListApiResponse:
    """Rows, with how many there were before filters and limits, for compatibility."""

    total: int
    num_after_truncation: int
    num_filtered: int
    result: list[dict[str, Any]]
    partial_failure_warning: str | None = ""
    warnings: list[str] | None = None


@dataclass
class ActorSummaryPerClass:
    """The actors of one class, by state."""

    class_name: str
    state_counts: dict[str, int] = field(default_factory=dict)


@dataclass
class ActorSummaries:
    """Actors, by class."""

    summary: dict[str, ActorSummaryPerClass]
    total_actors: int
    summary_by: str = "class"


@dataclass
class TaskSummaryPerFuncOrClassName:
    """The tasks of one function or method, by state."""

    func_or_class_name: str
    type: str
    state_counts: dict[str, int] = field(default_factory=dict)


@dataclass
class TaskSummaries:
    """Tasks, by function or method."""

    summary: dict[str, TaskSummaryPerFuncOrClassName]
    total_tasks: int
    total_actor_tasks: int
    total_actor_scheduled: int
    summary_by: str = "func_name"


@dataclass
class ObjectSummaryPerKey:
    """The references to objects that were made at one place."""

    total_objects: int
    total_size_mb: float
    total_num_workers: int
    total_num_nodes: int
    task_state_counts: dict[str, int] = field(default_factory=dict)
    task_attempt_number_counts: dict[str, int] = field(default_factory=dict)
    ref_type_counts: dict[str, int] = field(default_factory=dict)


@dataclass
class ObjectSummaries:
    """References to objects, by where they were made."""

    summary: dict[str, ObjectSummaryPerKey]
    total_objects: int
    total_size_mb: float
    callsite_enabled: bool
    summary_by: str = "callsite"


@dataclass
class StateSummary:
    """Counts by node, or under "cluster" of all nodes, for compatibility."""

    node_id_to_summary: dict[str, TaskSummaries | ActorSummaries | ObjectSummaries]


@dataclass
class SummaryApiResponse:
    """Counts, with how many rows there were before filters and limits, for compatibility."""

    total: int
    num_after_truncation: int
    num_filtered: int
    result: StateSummary | None = None
    partial_failure_warning: str | None = ""
    warnings: list[str] | None = None


def resource_to_schema(resource: StateResource) -> type[StateSchema]:
    """The class of the rows of `resource`."""
    return SCHEMAS[resource.value]


def dict_to_state(d: dict[str, Any], state_resource: StateResource) -> StateSchema:
    """The row of `state_resource` with these fields; others that `d` has are left out."""
    schema = resource_to_schema(state_resource)
    return schema(**filter_fields(d, schema, detail=True))


def filter_fields(data: dict[str, Any], state_dataclass: type[StateSchema], detail: bool) -> dict[str, Any]:
    """What `data` has in the columns of a list, with None in those that it has not."""
    return {column: data.get(column) for column in state_dataclass.list_columns(detail=detail)}


def remove_ansi_escape_codes(text: str) -> str:
    """`text` without the codes that move a terminal's cursor or colour what follows."""
    return re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]", "", text)


#: How a filter compares, and with what.
PredicateType = str
SupportedFilterType = Union[str, bool, int, float]
#: The rows of all lists.
AVAILABLE_STATES = [
    ActorState, PlacementGroupState, NodeState, WorkerState, JobState, TaskState, ObjectState, RuntimeEnvState,
]  # fmt: skip
