"""Every error a program can meet, under the names Ray gives them.

Purpose: `except ray.exceptions.X` written for Ray catches the same failure here.

Invariants:
1. Every class pickles with the standard `pickle`, whatever its constructor takes.
2. An error raised by user code reaches the caller as an instance of both
   `RayTaskError` and the class the user raised.
3. A cause that one side cannot pickle or unpickle never hides the failure: its
   text always arrives.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
import traceback
from typing import Any

from oxiray import _alias, _dual
from oxiray._error_facts import (
    RECONSTRUCTION_REASONS,
    as_hex,
    describe_death,
    optional_hex,
)
from oxiray._error_facts import ActorDiedErrorContext as ActorDiedErrorContext
from oxiray._error_facts import ErrorType as ErrorType

logger = logging.getLogger("ray.exceptions")

#: Longest traceback text carried with a failure; a longer one loses its middle.
TRACEBACK_CHARACTERS_MAX = 256 * 1024

_PACKAGE_DIRECTORY = os.path.dirname(os.path.abspath(__file__)) + os.sep
#: Parts of this package whose frames help the reader, as user code would.
_LIBRARY_PARTS = ("util", "train")
DEPENDENCY_HEADLINE = "  At least one of the input arguments for this task could not be computed:"
_TRACEBACK_START = "Traceback (most recent call last):"


def _restore(kind: type[BaseException] | str, arguments: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    # By name where it is a class of this module, whose own name may be one that the reader cannot import.
    known: type[BaseException] = globals()[kind] if isinstance(kind, str) else kind
    error = known.__new__(known)
    error.args = arguments
    error.__dict__.update(state)
    return error


class RayError(Exception):
    """Root of every error the runtime raises on its own account."""

    #: What `str()` says when the error was made without a message.
    default_message: str | None = None

    def __init__(self, *args: object) -> None:
        if not args and self.default_message is not None:
            args = (self.default_message,)
        super().__init__(*args)

    def __reduce__(self) -> Any:
        kind = type(self)
        is_known = globals().get(kind.__name__) is kind
        return _restore, (kind.__name__ if is_known else kind, self.args, dict(self.__dict__))

    def to_bytes(self) -> bytes:
        """The error, and its text for a reader that cannot rebuild it."""
        text = "".join(traceback.format_exception(type(self), self, self.__traceback__))
        return pickle.dumps({"language": "PYTHON", "pickled": _dual.dump(self), "formatted_traceback": text})

    @staticmethod
    def from_bytes(data: bytes) -> RayError:
        """The error written by `to_bytes`; an `UnserializableException` with its text if it cannot be rebuilt."""
        record = pickle.loads(data)
        error = _load(record["pickled"], record["formatted_traceback"])
        return error if isinstance(error, RayError) else RaySystemError(error)


class CrossLanguageError(RayError):
    """A failure in a task that was not written in Python."""


class TaskCancelledError(RayError):
    """The task was cancelled before it finished."""

    def __init__(self, task_id: object = None, error_message: str | None = None) -> None:
        self.task_id = task_id
        self.error_message = error_message
        which = "This task or its dependency" if task_id is None else f"Task: TaskID({as_hex(task_id)})"
        super().__init__(f"{which} was cancelled. {error_message or ''}".rstrip())


class UserCodeException(RayError):
    """Marks an error of user code so that retry rules look at its cause."""


class RayTaskError(RayError):
    """User code raised: carries the traceback of the process it happened in."""

    def __init__(
        self,
        function_name: str,
        traceback_str: str,
        cause: BaseException,
        proctitle: str | None = None,
        pid: int | None = None,
        ip: str | None = None,
        actor_repr: str | None = None,
        actor_id: str | None = None,
    ) -> None:
        self.function_name = function_name
        self.traceback_str = traceback_str
        self.cause = cause
        self.proctitle = proctitle or f"ray::{function_name}()"
        self.pid = os.getpid() if pid is None else pid
        self.ip = ip
        self.actor_repr = actor_repr
        self.actor_id = actor_id
        super().__init__(function_name, traceback_str, cause)

    def as_instanceof_cause(self) -> RayTaskError:
        """The same failure as an instance of `RayTaskError` and of the cause's class.

        Where no class can be both (a final class, a foreign metaclass, arguments
        that cannot be set), warns and returns this plain error, cause attached.
        """
        cause_class = type(self.cause)
        if isinstance(self, cause_class):
            return self
        try:
            return self.make_dual_exception_instance()
        except Exception as reason:
            logger.warning(
                "The exception raised by %s is a %s.%s, and no class can inherit that together with RayTaskError (%s). "
                "This exception is raised as RayTaskError only. You can use `ray_task_error.cause` to access the user exception.",
                self.function_name,
                cause_class.__module__,
                cause_class.__qualname__,
                reason,
            )
            return self

    def make_dual_exception_instance(self) -> RayTaskError:
        """The same failure as an instance of both classes; raises where no class can be both."""
        dual = _dual.make(RayTaskError, self.cause)
        dual._adopt(self)
        return dual

    def _adopt(self, failure: RayTaskError) -> None:
        for field in ("function_name", "traceback_str", "cause", "proctitle", "pid", "ip", "actor_repr", "actor_id"):
            self.__dict__[field] = failure.__dict__[field]

    def __str__(self) -> str:
        text = self.traceback_str.strip("\n").rstrip()
        before, found, after = text.partition(_TRACEBACK_START)
        # Where an argument failed, the text tells of another process.
        if not found or text.startswith(DEPENDENCY_HEADLINE):
            return f"{self._headline()}\n{text}"
        return f"{before}{self._headline()}{after}"

    def _headline(self) -> str:
        title = f"\x1b[36m{self.proctitle}\x1b[39m" if sys.stderr is not None and sys.stderr.isatty() else self.proctitle
        # A task whose argument failed had no process.
        facts = [f"pid={self.pid}"] if self.pid else []
        if facts and self.ip is not None:
            facts.append(f"ip={self.ip}")
        if self.actor_id is not None:
            facts.append(f"actor_id={self.actor_id}")
        if self.actor_repr is not None:
            facts.append(f"repr={self.actor_repr}")
        return f"{title} ({', '.join(facts)})" if facts else title

    def __reduce__(self) -> Any:
        fields = {name: value for name, value in self.__dict__.items() if name != "cause"}
        fields.pop("__notes__", None)
        plain = getattr(type(self), "_dual_of", None) is None
        return _restore_task_error, (fields, _dual.dump(self.cause), plain)


def _restore_task_error(fields: dict[str, Any], cause: bytes, plain: bool) -> RayError:
    described = [fields[name] for name in ("proctitle", "pid", "ip", "actor_repr", "actor_id")]
    known = _dual.load(cause)
    if known is None:
        unknown = RayTaskError(fields["function_name"], fields["traceback_str"], RayError(), *described)
        return UnserializableException(f"{MODULE}.RayTaskError: {unknown}")
    error = RayTaskError(fields["function_name"], fields["traceback_str"], known, *described)
    return error if plain else error.as_instanceof_cause()


class UnserializableException(RayError):
    """A failure whose exception could not be rebuilt in this process; its text remains."""

    def __init__(self, original_stack_trace: str) -> None:
        self._original_stack_trace = original_stack_trace
        super().__init__(
            "Failed to deserialize exception. Refer to https://docs.ray.io/en/latest/ray-core/objects/serialization.html"
            "#custom-serializers-for-exceptions for more information: its class may not be importable in this process, or its "
            f"constructor needs other arguments.\nOriginal exception:\n{original_stack_trace}"
        )


class WorkerCrashedError(RayError):
    """The process that ran the task died before it answered."""

    default_message = "The worker died unexpectedly while executing this task."


class LocalRayletDiedError(RayError):
    """The daemon of this machine is gone."""

    default_message = "the daemon of this machine is gone, and with it every worker: start the cluster again"


class NodeDiedError(RayError):
    """The machine that held the work is gone."""

    def __init__(self, message: str = "the machine that held this work is gone") -> None:
        self.message = message
        super().__init__(message)


class OutOfMemoryError(RayError):
    """The worker was stopped because the machine ran short of memory."""

    def __init__(self, message: str = "the worker was stopped because its machine ran short of memory") -> None:
        self.message = message
        super().__init__(message)


class RaySystemError(RayError):
    """The runtime itself failed."""

    def __init__(self, client_exc: object, traceback_str: str | None = None) -> None:
        self.client_exc = client_exc
        self.traceback_str = traceback_str
        super().__init__(f"System error: {client_exc}" + (f"\ntraceback: {traceback_str}" if traceback_str else ""))


class RayChannelError(RaySystemError):
    """A channel between processes failed."""


class RayChannelTimeoutError(RayChannelError, TimeoutError):
    """A channel between processes was not ready in time."""


class RayCgraphCapacityExceeded(RaySystemError):
    """Too many results of a compiled graph are unread."""


class RayDirectTransportError(RaySystemError):
    """A transfer from device to device failed."""


class StreamingGeneratorReplayInconsistentError(RaySystemError):
    """A generator that ran again yielded something else."""


class RayActorError(RayError):
    """The actor died, or cannot be reached."""

    BASE_ERROR_MSG = "The actor experienced an error before finishing this task."

    def __init__(
        self,
        actor_id: str | None = None,
        error_msg: str = BASE_ERROR_MSG,
        actor_init_failed: bool = False,
        preempted: bool = False,
    ) -> None:
        self.actor_id = actor_id
        self.error_msg = error_msg
        self._actor_init_failed = actor_init_failed
        self._preempted = preempted
        super().__init__(error_msg)

    @property
    def actor_init_failed(self) -> bool:
        """Whether the actor died in its constructor."""
        return self._actor_init_failed

    @property
    def preempted(self) -> bool:
        """Whether the actor's machine was taken away."""
        return self._preempted


class ActorDiedError(RayActorError):
    """The actor is dead and will not come back."""

    BASE_ERROR_MSG = "The actor died unexpectedly before finishing this task."

    def __init__(self, cause: RayTaskError | ActorDiedErrorContext | None = None) -> None:
        if isinstance(cause, RayTaskError):
            message = f"The actor died because of an error raised in its creation task, {cause}"
            super().__init__(optional_hex(cause.actor_id), message, actor_init_failed=True)
        elif cause is None:
            super().__init__(None, self.BASE_ERROR_MSG)
        else:
            super().__init__(
                optional_hex(cause.actor_id), describe_death(self.BASE_ERROR_MSG, cause), preempted=cause.preempted
            )
        self._know(cause if isinstance(cause, ActorDiedErrorContext) else ActorDiedErrorContext())

    def _know(self, known: ActorDiedErrorContext) -> None:
        """What is known of the actor; empty texts and 0 for what is not."""
        self.class_name = known.class_name
        self.name = known.name
        self.namespace = known.ray_namespace
        self.node_id = known.node_id
        self.node_ip_address = known.node_ip_address
        self.pid = known.pid
        self.never_started = known.never_started

    @staticmethod
    def from_task_error(task_error: RayTaskError) -> ActorDiedError:
        """The death of an actor whose constructor raised `task_error`."""
        return ActorDiedError(task_error)


class ActorUnavailableError(RayActorError):
    """The actor cannot be reached now; it may come back. The call may or may not have run."""

    def __init__(self, error_message: str, actor_id: bytes | str | None = None) -> None:
        identity = optional_hex(actor_id)
        which = "" if identity is None else f" {identity}"
        super().__init__(
            identity,
            f"The actor{which} is unavailable: {error_message.rstrip('.')}. The task may or may not have been executed on the actor: "
            "set `max_task_retries` if it is safe to run it twice.",
        )


class ObjectLostError(RayError):
    """No copy of the object's value is left."""

    _what = "no copy of the value is left (it was evicted, or its machine died)"

    def __init__(self, object_ref_hex: str, owner_address: object = None, call_site: str = "") -> None:
        self.object_ref_hex = object_ref_hex
        self.owner_address = owner_address
        self.call_site = (call_site or "").replace("|", "\n")
        super().__init__(self._describe())

    def _describe(self) -> str:
        where = f" Created at:\n{self.call_site}" if self.call_site else ""
        return f"Failed to retrieve object {self.object_ref_hex}: {self._what}.{where}"


class ObjectFetchTimedOutError(ObjectLostError):
    """The object's value exists, but did not arrive in time."""

    _what = "its value did not arrive from the machine that holds it in time"


class ObjectFreedError(ObjectLostError):
    """The object was freed by the program while still in use."""

    _what = "it was freed by hand (`internal.free`) while a reference to it was still in use"


class OwnerDiedError(ObjectLostError):
    """The process that created the reference died before the value was finished."""

    _what = "the process that created the reference died before the value was finished"


class ReferenceCountingAssertionError(ObjectLostError, AssertionError):
    """The object was given back while a reference to it existed."""

    _what = "it was given back while a reference to it existed, which is a bug of the runtime: please report it"


class ObjectReconstructionFailedError(ObjectLostError):
    """The value was lost and could not be computed again; `reason` says why."""

    def __init__(
        self,
        object_ref_hex: str,
        reason: ErrorType | None = None,
        reason_message: str | None = None,
        owner_address: object = None,
        call_site: str = "",
    ) -> None:
        self.reason = reason
        short = "" if reason is None else ErrorType(reason).name.removeprefix("OBJECT_UNRECONSTRUCTABLE_")
        self.reason_message = reason_message or RECONSTRUCTION_REASONS.get(short, "no reason was given")
        tag = f"[{short}] " if short else ""
        self._what = f"its value was lost and cannot be computed again: {tag}{self.reason_message}"
        super().__init__(object_ref_hex, owner_address, call_site)


class GetTimeoutError(RayError, TimeoutError):
    """`get` gave up before the value was there."""


class ObjectStoreFullError(RayError):
    """The object does not fit the store, and nothing more can be moved to disk."""


class OutOfDiskError(RayError):
    """The store is full and the disk it would move objects to is full too."""


class PlasmaObjectNotAvailable(RayError):
    """The object is not in this machine's store."""


class AsyncioActorExit(RayError):
    """Raised inside an asyncio actor to end it."""


class RuntimeEnvSetupError(RayError):
    """The runtime environment could not be prepared."""

    def __init__(self, error_message: str | None = None) -> None:
        self.error_message = error_message
        super().__init__(f"Failed to set up runtime environment.\n{error_message or ''}".rstrip())


class DeviceIsolationError(RaySystemError):
    """What was to run cannot be kept from devices that it was not granted, on a node that was started with
    `--device-isolation=require`. Not an error of Ray's, which has no such isolation."""


class DeviceMemoryExceededError(OutOfMemoryError):
    """The task used more memory of a GPU than it asked for with `gpu_memory=`, and its node ended it. It is not run again: it
    would use as much. Not an error of Ray's, which has no such requests."""


class DeviceFailedError(WorkerCrashedError):
    """The process that ran the task died, and the hardware of a device that it had had failed just before. Such deaths are not
    counted three times a task, and after that as `max_retries` says. Not an error of Ray's, which does not look at devices."""


class DeviceViolationError(RayError):
    """The task had a device open that it was not granted, on a node that ends what does (`--device-violations=end`). It is not
    run again. Not an error of Ray's, which does not look."""


class TaskPlacementGroupRemoved(RayError):
    """The placement group the task was to run in was removed."""


class ActorPlacementGroupRemoved(RayError):
    """The placement group the actor was to live in was removed."""


class PendingCallsLimitExceeded(RayError):
    """The actor has `max_pending_calls` calls waiting already."""


class TaskUnschedulableError(RayError):
    """No machine can ever run the task."""

    def __init__(self, error_message: str) -> None:
        self.error_message = error_message
        super().__init__(f"The task is not schedulable: {error_message}")


class DeviceDeadlockError(TaskUnschedulableError):
    """What is awaited needs what is held by those who wait for it, or for each other: none of them could ever go on.

    Held may be also by an actor without a call or by a placement group, where nobody who goes on could end it.

    It is raised where the result is awaited, `OXIRAY_DEADLOCK_WAIT_S` seconds after the wait was found. Not an error of
    Ray's, where such tasks wait for ever.
    """


class ActorUnschedulableError(RayError):
    """No machine can ever hold the actor."""

    def __init__(self, error_message: str) -> None:
        self.error_message = error_message
        super().__init__(f"The actor is not schedulable: {error_message}")


class ObjectRefStreamEndOfStreamError(RayError):
    """The generator has nothing more to yield."""


class OufOfBandObjectRefSerializationException(RayError):
    """A reference was pickled outside a task (the spelling of the name is Ray's)."""


class RpcError(RayError):
    """A call between the cluster's processes failed."""

    def __init__(self, message: str, rpc_code: int | None = None) -> None:
        self.message = message
        self.rpc_code = rpc_code
        super().__init__(message)


class AuthenticationError(RayError):
    """The cluster's token is missing or wrong."""

    def __init__(self, message: str) -> None:
        self.message = message
        mode = os.environ.get("RAY_AUTH_MODE", "disabled")
        note = "" if mode == "token" else f" Note: RAY_AUTH_MODE is currently '{mode}' (not 'token')."
        help_text = "See https://docs.ray.io/en/latest/ray-security/token-auth.html for how tokens are given."
        super().__init__(f"{message.rstrip('.')}.{note} {help_text}")


class ActorAlreadyExistsError(ValueError, RayError):
    """The name is taken by a live actor."""

    def __init__(self, error_message: str) -> None:
        self.error_message = error_message
        super().__init__(error_message)


class ActorHandleNotFoundError(ValueError, RayError):
    """The handle belongs to a cluster that is gone."""

    def __init__(self, error_message: str) -> None:
        self.error_message = error_message
        super().__init__(error_message)


def _load(data: bytes, text: str) -> BaseException:
    error = _dual.load(data)
    return UnserializableException(text) if error is None else error


#: The name under which programs import this module: Ray's, where `import ray` means Oxiray.
MODULE = "ray.exceptions" if _alias.is_installed() else __name__

#: Every error class of this module.
RAY_EXCEPTION_TYPES = [
    kind for kind in list(globals().values()) if isinstance(kind, type) and issubclass(kind, RayError)
]

for _kind in RAY_EXCEPTION_TYPES:
    _kind.__module__ = MODULE
del _kind
# Programs that import Oxiray by its own name have not loaded the other: the classes would travel to workers as copies of themselves,
# which catch nothing there.
sys.modules.setdefault(MODULE, sys.modules[__name__])

__all__ = [kind.__name__ for kind in RAY_EXCEPTION_TYPES] + [
    "ActorDiedErrorContext",
    "ErrorType",
    "RAY_EXCEPTION_TYPES",
]
