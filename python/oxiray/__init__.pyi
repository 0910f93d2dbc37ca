"""Types of the public API: what a program written for Ray may rely on."""

import concurrent.futures
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from types import TracebackType
from typing import Any, Generic, Literal, NoReturn, ParamSpec, TypeVar, overload

import typing_extensions

from oxiray import exceptions as exceptions
from oxiray import runtime_env as runtime_env
from oxiray import util as util
from oxiray._logging import LoggingConfig as LoggingConfig
from oxiray.dag import ClassMethodNode, ClassNode, FunctionNode
from oxiray.runtime_env import RuntimeEnv
from oxiray.util.scheduling_strategies import SchedulingStrategyT

__version__: str
__commit__: str

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")
_R_co = TypeVar("_R_co", covariant=True)
_T_co = TypeVar("_T_co", covariant=True)
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Method = typing_extensions.TypeVar("_Method", default=Any)

class _Id:
    def __init__(self, id: bytes) -> None: ...
    @classmethod
    def from_hex(cls, hex: str) -> _Id: ...
    def hex(self) -> str: ...
    def binary(self) -> bytes: ...
    def is_nil(self) -> bool: ...

class ActorID(_Id): ...
class JobID(_Id):
    @staticmethod
    def from_int(value: int) -> JobID: ...
    def int(self) -> int: ...

class NodeID(_Id): ...
class TaskID(_Id): ...
class WorkerID(_Id): ...

class ObjectRef(Awaitable[_R_co]):
    """A value that is here, elsewhere, or still being made."""

    def __init__(self, id: bytes) -> None: ...
    def __await__(self) -> Generator[Any, None, _R_co]: ...
    def __hash__(self) -> int: ...
    def hex(self) -> str: ...
    def binary(self) -> bytes: ...
    def is_nil(self) -> bool: ...
    def task_id(self) -> TaskID: ...
    def job_id(self) -> JobID: ...
    def future(self) -> concurrent.futures.Future[_R_co]: ...

ObjectID = ObjectRef

class ObjectRefGenerator(Generic[_R_co]):
    """The results of a call that come one by one."""

    def __iter__(self) -> ObjectRefGenerator[_R_co]: ...
    def __next__(self) -> ObjectRef[_R_co]: ...
    def __aiter__(self) -> ObjectRefGenerator[_R_co]: ...
    def __anext__(self) -> Awaitable[ObjectRef[_R_co]]: ...
    def completed(self) -> ObjectRef[None]: ...
    def next_ready(self) -> bool: ...
    def is_finished(self) -> bool: ...

class RemoteFunction(Generic[_P, _R]):
    """A function that runs in another process.

    An argument may be given as the reference of a value of its type; a call that
    does so in one of its first four places is taken as it is.
    """

    def bind(self, *args: Any, **kwargs: Any) -> FunctionNode: ...
    @overload
    def remote(self, *args: _P.args, **kwargs: _P.kwargs) -> ObjectRef[_R]: ...
    @overload
    def remote(self, a: ObjectRef[Any], /, *args: Any, **kwargs: Any) -> ObjectRef[_R]: ...
    @overload
    def remote(self, a: Any, b: ObjectRef[Any], /, *args: Any, **kwargs: Any) -> ObjectRef[_R]: ...
    @overload
    def remote(self, a: Any, b: Any, c: ObjectRef[Any], /, *args: Any, **kwargs: Any) -> ObjectRef[_R]: ...
    @overload
    def remote(self, a: Any, b: Any, c: Any, d: ObjectRef[Any], /, *args: Any, **kwargs: Any) -> ObjectRef[_R]: ...
    @overload
    def options(
        self,
        *,
        num_returns: int,
        num_cpus: float | None = ...,
        num_gpus: float | None = ...,
        resources: Mapping[str, float] | None = ...,
        accelerator_type: str | None = ...,
        memory: float | None = ...,
        gpu_memory: float | str | None = ...,
        priority: int | None = ...,
        preemptible: bool | None = ...,
        device_isolation: Literal["variable", "watch", "fence", "require"] | None = ...,
        max_retries: int | None = ...,
        retry_exceptions: bool | Sequence[type[BaseException]] = ...,
        name: str | None = ...,
        runtime_env: Mapping[str, Any] | RuntimeEnv | None = ...,
        scheduling_strategy: SchedulingStrategyT = ...,
        label_selector: Mapping[str, str] | None = ...,
        fallback_strategy: Sequence[Mapping[str, Any]] | None = ...,
        enable_task_events: bool = ...,
    ) -> _MultiReturnFunction[_P]: ...
    @overload
    def options(
        self,
        *,
        num_cpus: float | None = ...,
        num_gpus: float | None = ...,
        resources: Mapping[str, float] | None = ...,
        accelerator_type: str | None = ...,
        memory: float | None = ...,
        gpu_memory: float | str | None = ...,
        priority: int | None = ...,
        preemptible: bool | None = ...,
        device_isolation: Literal["variable", "watch", "fence", "require"] | None = ...,
        max_retries: int | None = ...,
        retry_exceptions: bool | Sequence[type[BaseException]] = ...,
        name: str | None = ...,
        runtime_env: Mapping[str, Any] | RuntimeEnv | None = ...,
        scheduling_strategy: SchedulingStrategyT = ...,
        label_selector: Mapping[str, str] | None = ...,
        fallback_strategy: Sequence[Mapping[str, Any]] | None = ...,
        enable_task_events: bool = ...,
    ) -> RemoteFunction[_P, _R]: ...
    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn: ...

class _MultiReturnFunction(Generic[_P]):
    """A remote function whose result is several references, or one, or none."""

    def remote(self, *args: Any, **kwargs: Any) -> Any: ...
    def options(self, **options: Any) -> _MultiReturnFunction[_P]: ...

class _GeneratorFunction(Generic[_P, _R]):
    """A remote function whose results come one by one."""

    @overload
    def remote(self, *args: _P.args, **kwargs: _P.kwargs) -> ObjectRefGenerator[_R]: ...
    @overload
    def remote(self, a: ObjectRef[Any], /, *args: Any, **kwargs: Any) -> ObjectRefGenerator[_R]: ...
    @overload
    def remote(self, a: Any, b: ObjectRef[Any], /, *args: Any, **kwargs: Any) -> ObjectRefGenerator[_R]: ...
    @overload
    def options(self, *, num_returns: int, **options: Any) -> _MultiReturnFunction[_P]: ...
    @overload
    def options(self, **options: Any) -> _GeneratorFunction[_P, _R]: ...
    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn: ...

class ActorClassInheritanceException(TypeError):
    """A class derives from one decorated with `@remote`."""

class ActorMethod(Generic[_Method]):
    """A method of an actor."""

    def remote(self, *args: Any, **kwargs: Any) -> ObjectRef[Any]: ...
    def options(self, **options: Any) -> ActorMethod[_Method]: ...
    def bind(self, *args: Any, **kwargs: Any) -> ClassMethodNode: ...

class ActorHandle(Generic[_T_co]):
    """An object that lives in another process."""

    def __getattr__(self, name: str) -> ActorMethod: ...
    def __hash__(self) -> int: ...

class ActorClass(Generic[_T]):
    """A class whose objects live in processes of their own."""

    def bind(self, *args: Any, **kwargs: Any) -> ClassNode: ...
    def remote(self, *args: Any, **kwargs: Any) -> ActorHandle[_T]: ...
    def options(
        self,
        *,
        num_cpus: float | None = ...,
        num_gpus: float | None = ...,
        resources: Mapping[str, float] | None = ...,
        accelerator_type: str | None = ...,
        memory: float | None = ...,
        gpu_memory: float | str | None = ...,
        priority: int | None = ...,
        preemptible: bool | None = ...,
        device_isolation: Literal["variable", "watch", "fence", "require"] | None = ...,
        name: str | None = ...,
        namespace: str | None = ...,
        lifetime: Literal["detached", "non_detached"] | None = ...,
        get_if_exists: bool = ...,
        max_concurrency: int | None = ...,
        max_restarts: int | None = ...,
        max_task_retries: int | None = ...,
        max_pending_calls: int | None = ...,
        allow_out_of_order_execution: bool | None = ...,
        runtime_env: Mapping[str, Any] | RuntimeEnv | None = ...,
        scheduling_strategy: SchedulingStrategyT = ...,
        label_selector: Mapping[str, str] | None = ...,
        fallback_strategy: Sequence[Mapping[str, Any]] | None = ...,
        enable_task_events: bool = ...,
    ) -> ActorClass[_T]: ...
    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn: ...

class _RemoteDecorator:
    @overload
    def __call__(self, target: type[_T], /) -> ActorClass[_T]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, target: Callable[_P, Iterator[_R] | AsyncIterator[_R]], /
    ) -> _GeneratorFunction[_P, _R]: ...
    @overload
    def __call__(self, target: Callable[_P, _R], /) -> RemoteFunction[_P, _R]: ...

class _MultiReturnDecorator:
    def __call__(self, target: Callable[_P, Any], /) -> _MultiReturnFunction[_P]: ...

@overload
def remote(target: type[_T], /) -> ActorClass[_T]: ...  # type: ignore[overload-overlap]
@overload
def remote(  # type: ignore[overload-overlap]
    target: Callable[_P, Iterator[_R] | AsyncIterator[_R]], /
) -> _GeneratorFunction[_P, _R]: ...
@overload
def remote(target: Callable[_P, _R], /) -> RemoteFunction[_P, _R]: ...
@overload
def remote(*, num_returns: int | str, **options: Any) -> _MultiReturnDecorator: ...
@overload
def remote(
    *,
    num_cpus: float | None = ...,
    num_gpus: float | None = ...,
    resources: Mapping[str, float] | None = ...,
    accelerator_type: str | None = ...,
    memory: float | None = ...,
    gpu_memory: float | str | None = ...,
    priority: int | None = ...,
    preemptible: bool | None = ...,
    device_isolation: Literal["variable", "watch", "fence", "require"] | None = ...,
    max_calls: int | None = ...,
    max_retries: int | None = ...,
    retry_exceptions: bool | Sequence[type[BaseException]] = ...,
    name: str | None = ...,
    namespace: str | None = ...,
    lifetime: Literal["detached", "non_detached"] | None = ...,
    get_if_exists: bool = ...,
    max_concurrency: int | None = ...,
    max_restarts: int | None = ...,
    max_task_retries: int | None = ...,
    max_pending_calls: int | None = ...,
    concurrency_groups: Mapping[str, int] | None = ...,
    allow_out_of_order_execution: bool | None = ...,
    runtime_env: Mapping[str, Any] | RuntimeEnv | None = ...,
    scheduling_strategy: SchedulingStrategyT = ...,
    label_selector: Mapping[str, str] | None = ...,
    fallback_strategy: Sequence[Mapping[str, Any]] | None = ...,
    enable_task_events: bool = ...,
    _generator_backpressure_num_objects: int | None = ...,
    _num_objects_per_yield: int | None = ...,
) -> _RemoteDecorator: ...
@overload
def method(function: _Function, /) -> _Function: ...
@overload
def method(
    *,
    num_returns: int | str | None = ...,
    concurrency_group: str | None = ...,
    max_task_retries: int | None = ...,
    retry_exceptions: bool | Sequence[type[BaseException]] | None = ...,
    enable_task_events: bool = ...,
    tensor_transport: str | None = ...,
    _generator_backpressure_num_objects: int | None = ...,
    _num_objects_per_yield: int | None = ...,
) -> Callable[[_Function], _Function]: ...

class RayContext(Mapping[str, Any]):
    """What `init` connected to; leaving it as a context manager shuts down."""

    address_info: dict[str, Any]
    dashboard_url: str | None
    python_version: str
    ray_version: str
    ray_commit: str
    def __enter__(self) -> RayContext: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def __getitem__(self, key: str) -> Any: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def disconnect(self) -> None: ...

def init(
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
    logging_level: int | str = ...,
    logging_format: str | None = None,
    logging_config: LoggingConfig | None = None,
    log_to_driver: bool | None = None,
    namespace: str | None = None,
    runtime_env: Mapping[str, Any] | RuntimeEnv | None = None,
    enable_resource_isolation: bool = False,
    cgroup_path: str | None = None,
    system_reserved_cpu: float | None = None,
    system_reserved_memory: int | None = None,
    proxy_server_url: str | None = None,
    **kwargs: Any,
) -> RayContext: ...
def shutdown(*, wait_for_processes: bool = False) -> None: ...
def is_initialized() -> bool: ...
@overload
def get(refs: ObjectRef[_R], *, timeout: float | None = None) -> _R: ...
@overload
def get(refs: ObjectRefGenerator[_R], *, timeout: float | None = None) -> ObjectRefGenerator[_R]: ...
@overload
def get(refs: Sequence[ObjectRef[_R]], *, timeout: float | None = None) -> list[_R]: ...
def put(value: _R) -> ObjectRef[_R]: ...
@overload
def wait(
    ray_waitables: list[ObjectRef[_R]],
    *,
    num_returns: int = 1,
    timeout: float | None = None,
    fetch_local: bool = True,
) -> tuple[list[ObjectRef[_R]], list[ObjectRef[_R]]]: ...
@overload
def wait(
    ray_waitables: list[ObjectRefGenerator[_R]],
    *,
    num_returns: int = 1,
    timeout: float | None = None,
    fetch_local: bool = True,
) -> tuple[list[ObjectRefGenerator[_R]], list[ObjectRefGenerator[_R]]]: ...
def cancel(ray_waitable: ObjectRef[Any], *, force: bool = False, recursive: bool = True) -> None: ...
def kill(actor: ActorHandle[Any], *, no_restart: bool = True) -> None: ...
def get_actor(name: str, namespace: str | None = None) -> ActorHandle[Any]: ...
def nodes() -> list[dict[str, Any]]: ...
def timeline(filename: str | None = None) -> list[dict[str, Any]] | None: ...
def cluster_resources() -> dict[str, float]: ...
def available_resources() -> dict[str, float]: ...
def get_gpu_ids() -> list[int] | list[str]: ...

class RuntimeContext:
    """Where this code runs, and with what."""

    def get_job_id(self) -> str: ...
    def get_node_id(self) -> str: ...
    def get_worker_id(self) -> str: ...
    def is_canceled(self) -> bool: ...
    def get_task_id(self) -> str | None: ...
    def get_actor_id(self) -> str | None: ...
    def get_actor_name(self) -> str | None: ...
    def get_accelerator_ids(self) -> dict[str, list[str]]: ...
    def get_assigned_resources(self) -> dict[str, float]: ...
    def get_runtime_env_string(self) -> str: ...
    def get_placement_group_id(self) -> str | None: ...
    def get_node_labels(self) -> dict[str, str]: ...
    @property
    def namespace(self) -> str: ...
    @property
    def was_current_actor_reconstructed(self) -> bool: ...
    @property
    def current_actor(self) -> ActorHandle[Any]: ...
    @property
    def gcs_address(self) -> str: ...
    @property
    def runtime_env(self) -> RuntimeEnv: ...

def get_runtime_context() -> RuntimeContext: ...
