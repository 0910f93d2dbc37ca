"""How a failure becomes an exception: in the worker that meets it, and in the caller told of it.

Purpose: the one place that knows the runtime's error codes and trims tracebacks.

Invariants:
1. A failure is never nested: a task that fails because another did carries the
   first cause, and the text of both.
2. `error_from_runtime` always returns an error; an unknown code is a system error.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from oxiray import _dual, exceptions as errors
from oxiray._error_facts import optional_hex
from oxiray.exceptions import RayError, RayTaskError


def from_current_exception(
    function_name: str,
    error: BaseException,
    pid: int,
    ip: str,
    actor_repr: str | None = None,
    actor_id: str | None = None,
    cause: BaseException | None = None,
    told: Sequence[str] = (),
) -> RayTaskError:
    """The failure of a task or method whose code raised `error`, ready to be pickled.

    `cause` is what callers are to see in place of `error`, and `told` lines on what is known of it besides.
    """
    text = traceback_text(error, cause) + "".join(told)
    if cause is None:
        cause = error.cause if isinstance(error, RayTaskError) else error
    return RayTaskError(
        function_name,
        text,
        _picklable(cause, text),
        proctitle=f"ray::{function_name}()",
        pid=pid,
        ip=ip,
        actor_repr=actor_repr,
        actor_id=actor_id,
    )


#: What errors of CUDA, of ROCm and of their libraries say.
_DEVICE_ERRORS = re.compile(
    r"CUDA (?:runtime |driver )?error|cudaError|CUDA_ERROR_|CUDNN_STATUS_|cuDNN error|CUBLAS_STATUS_|CUFFT_|HIP error|hipError",
)
_DEVICE_ERROR_CHARACTERS_MAX = 200


def device_error(error: BaseException) -> str | None:
    """What an error of a device says that code raised, or that its error came from; none where its memory was too small."""
    seen: set[int] = set()
    current: BaseException | None = error
    # What another process raised is known of that one.
    while current is not None and id(current) not in seen and not isinstance(current, RayError):
        seen.add(id(current))
        try:
            text = str(current)
        except Exception:
            text = ""
        if _DEVICE_ERRORS.search(text) is not None and "out of memory" not in text and "OUT_OF_MEMORY" not in text:
            return (text.splitlines() or [""])[0][:_DEVICE_ERROR_CHARACTERS_MAX]
        current = current.__cause__ or current.__context__
    return None


def from_dependency(
    function_name: str,
    upstream: BaseException,
    pid: int | None = None,
    ip: str | None = None,
    actor_repr: str | None = None,
    actor_id: str | None = None,
) -> RayTaskError:
    """The failure of a task that never ran because the argument `upstream` failed; by default this process found that out."""
    kind = RayTaskError if isinstance(upstream, RayTaskError) else type(upstream)
    text = f"{errors.DEPENDENCY_HEADLINE}\n{kind.__module__}.{kind.__qualname__}: {upstream}"
    cause = upstream.cause if isinstance(upstream, RayTaskError) else upstream
    return RayTaskError(function_name, text, cause, pid=pid, ip=ip, actor_repr=actor_repr, actor_id=actor_id)


def of_argument(function_names: list[str], error: BaseException) -> BaseException:
    """The error to raise for tasks that never ran, each for want of the one's result before it; `error` is the argument's."""
    for name in function_names:
        error = from_dependency(name, error, ip=own_address()).as_instanceof_cause()
    return error


_addresses: dict[str, str] = {}


def own_address() -> str:
    """This machine's address within the cluster, asked for once; the local one where nobody answers."""
    from oxiray import _core
    from oxiray.util._node import get_node_ip_address

    try:
        node_id = _core.context()["node_id"]
        if node_id not in _addresses:
            _addresses[node_id] = get_node_ip_address()
        return _addresses[node_id]
    except Exception:
        return "127.0.0.1"


def traceback_text(error: BaseException, seen_as: BaseException | None = None) -> str:
    """The traceback of `error` as Python prints it, without this package's own frames; it ends in `seen_as` where that is given."""
    shown = error if seen_as is None else seen_as
    report = traceback.TracebackException(type(shown), shown, error.__traceback__)
    _drop_own_frames(report, set())
    text = "".join(report.format())
    limit = errors.TRACEBACK_CHARACTERS_MAX
    if len(text) <= limit:
        return text
    left_out = len(text) - limit
    return f"{text[: limit // 2]}\n... {left_out} characters left out ...\n{text[-limit // 2 :]}"


def _drop_own_frames(report: traceback.TracebackException, seen: set[int]) -> None:
    if id(report) in seen:
        return
    seen.add(id(report))
    if report.stack is not None:
        report.stack[:] = [frame for frame in report.stack if not is_own_frame(frame.filename)]
    linked = [report.__cause__, report.__context__, *(getattr(report, "exceptions", None) or ())]
    for other in linked:
        if other is not None:
            _drop_own_frames(other, seen)


def is_own_frame(filename: str) -> bool:
    """Whether a frame of this file tells the user nothing: it is the runtime's."""
    directory = errors._PACKAGE_DIRECTORY
    if not filename.startswith(directory):
        return False
    first, _, _ = filename[len(directory) :].partition("/")
    return first not in errors._LIBRARY_PARTS


def _picklable(cause: BaseException, text: str) -> BaseException:
    try:
        _dual.dump(cause)
    except Exception as reason:
        kind = f"{type(cause).__module__}.{type(cause).__qualname__}"
        return RayError(
            f"Exception {kind} isn't serializable: {reason}. Raise an exception whose members can be pickled "
            f"to have it arrive whole.\nOriginal exception details:\n{text}"
        )
    return cause


def error_from_runtime(code: str, message: str, payload: object | None = None, **details: Any) -> RayError:
    """The exception for a failure the runtime reports.

    `payload` is the failure behind this one where there is one: a `RayTaskError`
    (an actor's constructor raised) or an `ActorDiedErrorContext`. `details` may
    name `actor_id`, `task_id`, `object_id`, `owner`, `call_site`, `preempted`,
    `actor_init_failed`; what a code does not use is ignored.
    """
    make = _BY_CODE.get(code)
    if make is None:
        return errors.RaySystemError(f"{message} (error code {code!r}, which this version does not know)")
    return make(message, payload, details)


_Maker = Callable[[str, object, dict[str, Any]], RayError]


def _plain(kind: type[RayError]) -> _Maker:
    return lambda message, payload, details: kind(message) if message else kind()


def _with_text(kind: Callable[[str], RayError]) -> _Maker:
    return lambda message, payload, details: kind(message)


def _lost(kind: type[errors.ObjectLostError]) -> _Maker:
    def make(message: str, payload: object, details: dict[str, Any]) -> RayError:
        identity = optional_hex(details.get("object_id")) or "(unknown)"
        error = kind(identity, details.get("owner"), details.get("call_site") or "")
        if message:
            error.args = (f"{error.args[0]} {message}",)
        return error

    return make


def _unreconstructable(reason: errors.ErrorType) -> _Maker:
    def make(message: str, payload: object, details: dict[str, Any]) -> RayError:
        identity = optional_hex(details.get("object_id")) or "(unknown)"
        return errors.ObjectReconstructionFailedError(identity, reason, message or None, details.get("owner"))

    return make


def _actor_died(message: str, payload: object, details: dict[str, Any]) -> RayError:
    actor_id = optional_hex(details.get("actor_id"))
    known = errors.ActorDiedErrorContext(
        error_message=message,
        actor_id=actor_id,
        class_name=details.get("class_name") or "",
        name=details.get("name") or "",
        ray_namespace=details.get("namespace") or "",
        node_id=details.get("node_id") or "",
        node_ip_address=details.get("ip") or "",
        pid=details.get("pid") or 0,
        preempted=bool(details.get("preempted")),
        never_started=bool(details.get("never_started")),
    )
    if isinstance(payload, (RayTaskError, errors.ActorDiedErrorContext)):
        error = errors.ActorDiedError(payload)
        if isinstance(payload, RayTaskError):
            error._know(known)
    else:
        error = errors.ActorDiedError(known)
        error._actor_init_failed = bool(details.get("actor_init_failed"))
    if error.actor_id is None:
        error.actor_id = actor_id
    return error


class ActorDiedWithPlacementGroup(errors.ActorPlacementGroupRemoved, errors.ActorDiedError):
    """The actor's placement group was removed: in Ray the one or the other is raised, by what the actor did then."""

    def __init__(self, message: str) -> None:
        self._message = message
        errors.ActorDiedError.__init__(self, errors.ActorDiedErrorContext(error_message=message))

    def __reduce__(self) -> Any:
        return ActorDiedWithPlacementGroup, (self._message,)


class TaskEndedWithPlacementGroup(errors.TaskPlacementGroupRemoved, errors.WorkerCrashedError):
    """The task's placement group was removed: in Ray the one is raised for a task that waited, the other for one that ran."""


def _actor_group_removed(message: str, payload: object, details: dict[str, Any]) -> RayError:
    return ActorDiedWithPlacementGroup(message)


def _actor_unavailable(message: str, payload: object, details: dict[str, Any]) -> RayError:
    return errors.ActorUnavailableError(message, details.get("actor_id"))


def _cancelled(message: str, payload: object, details: dict[str, Any]) -> RayError:
    return errors.TaskCancelledError(payload or details.get("task_id"), message or None)


def _crashed(error: type[errors.WorkerCrashedError]) -> _Maker:
    """An error that begins as Ray's of a worker that died, which programs match on."""
    return lambda message, payload, details: error(f"{error.default_message} {message}".rstrip())


_BY_CODE: dict[str, _Maker] = {
    "task_unschedulable": _with_text(errors.TaskUnschedulableError),
    "device_deadlock": _with_text(errors.DeviceDeadlockError),
    "actor_unschedulable": _with_text(errors.ActorUnschedulableError),
    "worker_crashed": _crashed(errors.WorkerCrashedError),
    "out_of_memory": _plain(errors.OutOfMemoryError),
    "device_failed": _crashed(errors.DeviceFailedError),
    "device_memory_exceeded": _plain(errors.DeviceMemoryExceededError),
    "actor_died": _actor_died,
    # The answer of the call that ended the actor.
    "actor_left": _actor_died,
    "actor_unavailable": _actor_unavailable,
    "task_placement_group_removed": _plain(TaskEndedWithPlacementGroup),
    "actor_placement_group_removed": _actor_group_removed,
    "pending_calls": _plain(errors.PendingCallsLimitExceeded),
    "owner_died": _lost(errors.OwnerDiedError),
    "object_lost": _lost(errors.ObjectLostError),
    "object_freed": _lost(errors.ObjectFreedError),
    "object_not_ready": _lost(errors.ObjectFetchTimedOutError),
    **{reason.name.removeprefix("OBJECT_").lower(): _unreconstructable(reason) for reason in errors.ErrorType},
    "store_full": _plain(errors.ObjectStoreFullError),
    "out_of_disk": _plain(errors.OutOfDiskError),
    "runtime_env": _with_text(errors.RuntimeEnvSetupError),
    "device_violation": _with_text(errors.DeviceViolationError),
    "device_isolation": _with_text(errors.DeviceIsolationError),
    "daemon_died": _plain(errors.LocalRayletDiedError),
    "node_died": _plain(errors.NodeDiedError),
    "cancelled": _cancelled,
    "timeout": _plain(errors.GetTimeoutError),
    "stream_replay": _with_text(errors.StreamingGeneratorReplayInconsistentError),
    "end_of_stream": _with_text(errors.ObjectRefStreamEndOfStreamError),
    "system": _with_text(errors.RaySystemError),
}
