"""The errors: their family tree, what they say and carry, and that they survive the way between processes."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import textwrap
import traceback
from typing import Any

import cloudpickle
import pytest
from oxiray import _serialization, exceptions as errors
from oxiray._failures import error_from_runtime, from_current_exception, from_dependency, is_own_frame, traceback_text
from oxiray.remote_function import code_of

BASES = {
    "RayTaskError": ("RayError",),
    "RayActorError": ("RayError",),
    "ActorDiedError": ("RayActorError",),
    "ActorUnavailableError": ("RayActorError",),
    "TaskCancelledError": ("RayError",),
    "WorkerCrashedError": ("RayError",),
    "LocalRayletDiedError": ("RayError",),
    "NodeDiedError": ("RayError",),
    "OutOfMemoryError": ("RayError",),
    "RaySystemError": ("RayError",),
    "RayChannelError": ("RaySystemError",),
    "RayChannelTimeoutError": ("RayChannelError", "TimeoutError"),
    "RayCgraphCapacityExceeded": ("RaySystemError",),
    "RayDirectTransportError": ("RaySystemError",),
    "StreamingGeneratorReplayInconsistentError": ("RaySystemError",),
    "DeviceIsolationError": ("RaySystemError",),
    "DeviceFailedError": ("WorkerCrashedError",),
    "DeviceMemoryExceededError": ("OutOfMemoryError",),
    "DeviceViolationError": ("RayError",),
    "ObjectLostError": ("RayError",),
    "ObjectFetchTimedOutError": ("ObjectLostError",),
    "ObjectFreedError": ("ObjectLostError",),
    "OwnerDiedError": ("ObjectLostError",),
    "ObjectReconstructionFailedError": ("ObjectLostError",),
    "ReferenceCountingAssertionError": ("ObjectLostError", "AssertionError"),
    "GetTimeoutError": ("RayError", "TimeoutError"),
    "ObjectStoreFullError": ("RayError",),
    "OutOfDiskError": ("RayError",),
    "PlasmaObjectNotAvailable": ("RayError",),
    "RuntimeEnvSetupError": ("RayError",),
    "PendingCallsLimitExceeded": ("RayError",),
    "AsyncioActorExit": ("RayError",),
    "TaskPlacementGroupRemoved": ("RayError",),
    "ActorPlacementGroupRemoved": ("RayError",),
    "TaskUnschedulableError": ("RayError",),
    "DeviceDeadlockError": ("TaskUnschedulableError",),
    "ActorUnschedulableError": ("RayError",),
    "CrossLanguageError": ("RayError",),
    "UnserializableException": ("RayError",),
    "UserCodeException": ("RayError",),
    "RpcError": ("RayError",),
    "AuthenticationError": ("RayError",),
    "ObjectRefStreamEndOfStreamError": ("RayError",),
    "OufOfBandObjectRefSerializationException": ("RayError",),
    "ActorAlreadyExistsError": ("ValueError", "RayError"),
    "ActorHandleNotFoundError": ("ValueError", "RayError"),
    "RayError": ("Exception",),
}


@pytest.mark.parametrize(("name", "bases"), BASES.items())
def test_family_tree(name: str, bases: tuple[str, ...]) -> None:
    assert tuple(base.__name__ for base in getattr(errors, name).__bases__) == bases


def test_nothing_is_left_out_of_the_tree() -> None:
    assert {kind.__name__ for kind in errors.RAY_EXCEPTION_TYPES} == set(BASES)


def task_error(cause: BaseException) -> errors.RayTaskError:
    return errors.RayTaskError("f", "Traceback (most recent call last):\n  File x\nE: boom", cause, pid=7, ip="1.2.3.4")


EXAMPLES: list[errors.RayError] = [
    task_error(ValueError("boom")),
    errors.RayActorError("ab", "it died", actor_init_failed=True, preempted=True),
    errors.ActorDiedError(),
    errors.ActorDiedError(task_error(ValueError("boom"))),
    errors.ActorDiedError(errors.ActorDiedErrorContext("killed", actor_id="ab", class_name="A", pid=3, preempted=True)),
    errors.ActorUnavailableError("restarting.", b"\x01" * 16),
    errors.TaskCancelledError("ab", "by cancel()"),
    errors.WorkerCrashedError(),
    errors.WorkerCrashedError("killed by signal 9"),
    errors.RaySystemError(ValueError("x"), "tb"),
    errors.RayChannelTimeoutError("slow"),
    errors.ObjectLostError("ab", b"owner", "file:1|file:2"),
    errors.ObjectReconstructionFailedError("ab", errors.ErrorType.OBJECT_UNRECONSTRUCTABLE_PUT),
    errors.ReferenceCountingAssertionError("ab", None, ""),
    errors.GetTimeoutError("late"),
    errors.RuntimeEnvSetupError("no such field"),
    errors.DeviceIsolationError("no fence"),
    errors.DeviceFailedError("GPU 0 reported Xid 79"),
    errors.DeviceMemoryExceededError("it used 9.00 GiB and had asked for 8.00 GiB"),
    errors.DeviceViolationError("another's device"),
    errors.TaskUnschedulableError("too big"),
    errors.DeviceDeadlockError("each for the other"),
    errors.UnserializableException("tb"),
    errors.RpcError("gone", rpc_code=14),
    errors.ActorAlreadyExistsError(error_message="name taken"),
    errors.ActorHandleNotFoundError("of another cluster"),
    errors.NodeDiedError(message="unplugged"),
    errors.OutOfMemoryError(),
    errors.AuthenticationError(message="wrong token"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_survive_pickling(error: errors.RayError) -> None:
    ways: list[Any] = [
        lambda: pickle.loads(pickle.dumps(error)),
        lambda: pickle.loads(cloudpickle.dumps(error)),
        lambda: copy.copy(error),
        lambda: errors.RayError.from_bytes(error.to_bytes()),
    ]
    for way in ways:
        twin = way()
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        facts = {name: str(value) for name, value in vars(error).items()}
        assert {name: str(value) for name, value in vars(twin).items()} == facts


def test_bytes_of_an_error_no_reader_can_rebuild_keep_its_text() -> None:
    record = pickle.loads(errors.RaySystemError("disk on fire").to_bytes())
    record["pickled"] = b"garbage"
    twin = errors.RayError.from_bytes(pickle.dumps(record))
    assert isinstance(twin, errors.UnserializableException)
    assert "disk on fire" in str(twin)


def test_a_task_error_is_also_its_cause() -> None:
    class Custom(ValueError):
        def __init__(self, code: int) -> None:
            super().__init__(code)
            self.code = code

    raised = task_error(Custom(5)).as_instanceof_cause()
    assert isinstance(raised, errors.RayTaskError)
    assert isinstance(raised, Custom)
    assert type(raised).__name__ == type(raised).__qualname__ == "RayTaskError(Custom)"
    assert raised.args == (raised.cause,)
    assert raised.code == 5
    assert not hasattr(raised, "no_such_attribute")
    assert "ray::f() (pid=7, ip=1.2.3.4)" in str(raised)
    assert type(task_error(Custom(6)).as_instanceof_cause()) is type(raised)
    twin = pickle.loads(cloudpickle.dumps(raised))
    assert isinstance(twin, Custom)
    assert (twin.code, str(twin), twin.function_name, twin.pid) == (5, str(raised), "f", 7)
    assert twin.as_instanceof_cause() is twin


@pytest.mark.parametrize("cause", [Exception("x"), BaseException("x"), errors.RayError("x")], ids=repr)
def test_a_cause_of_a_base_class_needs_no_second_class(cause: BaseException) -> None:
    plain = task_error(cause)
    assert plain.as_instanceof_cause() is plain
    assert plain.cause is cause


@pytest.mark.parametrize(
    "cause",
    [
        OSError(2, "missing", "/x"),
        KeyError("k"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
        StopIteration(3),
        SystemExit(4),
        KeyboardInterrupt(),
        errors.ObjectLostError("ab"),
        errors.GetTimeoutError("late"),
        subprocess.CalledProcessError(1, ["false"]),
    ],
    ids=lambda cause: type(cause).__name__,
)
def test_causes_of_many_layouts(cause: BaseException) -> None:
    raised = task_error(cause).as_instanceof_cause()
    assert isinstance(raised, type(cause))
    assert type(raised) is not errors.RayTaskError
    twin = pickle.loads(pickle.dumps(raised))
    assert isinstance(twin, type(cause))
    assert str(twin) == str(raised)
    assert repr(twin) == repr(raised)


class Final(Exception):
    def __init_subclass__(cls) -> None:
        raise TypeError("Final takes no subclass")


class ArgumentsFixed(Exception):
    @property
    def args(self) -> tuple[()]:  # type: ignore[override]
        return ()


def test_a_cause_with_arguments_of_its_own() -> None:
    cause = ArgumentsFixed("x")
    both = task_error(cause).as_instanceof_cause()
    assert isinstance(both, ArgumentsFixed)
    assert both.args == (cause,)


def test_a_cause_that_cannot_be_inherited(caplog: pytest.LogCaptureFixture) -> None:
    cause = Final("x")
    plain = task_error(cause)
    assert plain.as_instanceof_cause() is plain
    assert plain.cause is cause
    assert type(cause).__name__ in caplog.text


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups are new in 3.11")
def test_exception_groups() -> None:
    group = ExceptionGroup("several", [ValueError("a"), OSError("b")])  # noqa: F821
    raised: Any = pickle.loads(pickle.dumps(task_error(group).as_instanceof_cause()))
    assert isinstance(raised, ExceptionGroup)  # noqa: F821
    assert isinstance(raised, errors.RayTaskError)
    assert [type(member) for member in raised.exceptions] == [ValueError, OSError]
    assert raised.message == "several"
    bare = task_error(BaseExceptionGroup("interrupted", [KeyboardInterrupt()]))  # noqa: F821
    assert bare.as_instanceof_cause() is bare


def raise_in_user_code() -> None:
    raise ValueError("boom")


def failure(function: Any, **facts: Any) -> errors.RayTaskError:
    try:
        function()
    except BaseException as error:
        return from_current_exception("mod.f", error, 9, "10.0.0.1", **facts)
    raise AssertionError("the function must raise")


def test_the_remote_traceback_is_the_message() -> None:
    text = str(failure(raise_in_user_code, actor_repr="A(1)", actor_id="ab").as_instanceof_cause())
    assert text.startswith("ray::mod.f() (pid=9, ip=10.0.0.1, actor_id=ab, repr=A(1))\n")
    assert "in raise_in_user_code" in text
    assert text.endswith("ValueError: boom")


def test_frames_of_the_runtime_are_left_out() -> None:
    package = os.path.dirname(errors.__file__)
    assert is_own_frame(os.path.join(package, "_worker.py"))
    assert not is_own_frame(os.path.join(package, "util", "debug.py"))
    assert not is_own_frame(__file__)
    code = "def run_task(function):\n    function()\n"
    scope: dict[str, Any] = {}
    exec(compile(code, os.path.join(package, "_worker.py"), "exec"), scope)  # noqa: S102
    text = failure(lambda: scope["run_task"](raise_in_user_code)).traceback_str
    assert "_worker.py" not in text
    assert "raise_in_user_code" in text


def test_what_travels_keeps_the_file_that_it_is_written_in() -> None:
    def with_one_inside() -> Any:
        return lambda: 1 / 0

    parts, _ = _serialization.dumps({"function": with_one_inside})
    for arrived in pickle.loads(code_of(with_one_inside)), pickle.loads(b"".join(parts))["function"]:
        assert (arrived.__code__.co_filename, arrived().__code__.co_filename) == (__file__, __file__)
        with pytest.raises(ZeroDivisionError) as caught:
            arrived()()
        assert "return lambda: 1 / 0" in "".join(traceback.format_exception(caught.value)), "the line is shown"


def test_a_long_traceback_loses_its_middle() -> None:
    text = traceback_text(ValueError("x" * (errors.TRACEBACK_CHARACTERS_MAX * 2)))
    assert len(text) < errors.TRACEBACK_CHARACTERS_MAX + 200
    assert "characters left out" in text


def test_a_failure_within_a_failure_keeps_the_first_cause() -> None:
    inner = failure(raise_in_user_code).as_instanceof_cause()

    def outer() -> None:
        raise inner

    both = failure(outer)
    assert isinstance(both.cause, ValueError)
    assert not isinstance(both.cause, errors.RayTaskError)
    assert "in raise_in_user_code" in str(both)
    assert "in outer" in str(both)


def test_a_cause_that_cannot_be_pickled_becomes_its_text() -> None:
    def fail() -> None:
        error = ValueError("held a lock")
        error.frame = sys._getframe()  # type: ignore[attr-defined]
        raise error

    carried = failure(fail)
    assert type(carried.cause) is errors.RayError
    assert "builtins.ValueError isn't serializable" in str(carried.cause)
    assert "held a lock" in str(pickle.loads(pickle.dumps(carried)).as_instanceof_cause())


class NeedsTwo(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


def test_a_cause_that_cannot_be_rebuilt_leaves_its_traceback() -> None:
    def fail() -> None:
        raise NeedsTwo("one", "two")

    raised = pickle.loads(pickle.dumps(failure(fail)))
    assert isinstance(raised, errors.UnserializableException)
    assert "one and two" in str(raised)


def test_a_class_of_the_users_script_survives() -> None:
    program = """
        import pickle
        from oxiray._failures import from_current_exception
        class Mine(Exception):
            pass
        try:
            raise Mine("here")
        except Mine as error:
            data = pickle.dumps(from_current_exception("f", error, 1, "ip"))
        caught = pickle.loads(data).as_instanceof_cause()
        assert isinstance(caught, Mine), type(caught).__mro__
        del Mine
        print(repr(pickle.loads(data).as_instanceof_cause()))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout == "RayTaskError(Mine)(Mine('here'))\n", done.stderr


def test_an_argument_that_failed() -> None:
    upstream = failure(raise_in_user_code).as_instanceof_cause()
    error = from_dependency("g", upstream, 3, "10.0.0.2")
    assert isinstance(error, errors.RayTaskError)
    assert isinstance(error.as_instanceof_cause(), ValueError)
    assert str(error).startswith("ray::g() (pid=3, ip=10.0.0.2)\n  At least one of the input arguments")
    assert "ray::mod.f() (pid=9" in str(error)
    lost = errors.ObjectLostError("ab")
    without_process = from_dependency("g", lost).as_instanceof_cause()
    assert isinstance(without_process, errors.ObjectLostError) and without_process.cause is lost
    assert str(without_process).startswith(f"ray::g() (pid={os.getpid()})\n  At least one") and str(lost) in str(without_process)
    assert without_process.object_ref_hex == "ab"


def test_an_actor_whose_constructor_raised() -> None:
    cause = failure(raise_in_user_code, actor_id="ab")
    error = errors.ActorDiedError.from_task_error(cause)
    assert (error.actor_init_failed, error.actor_id, error.preempted) == (True, "ab", False)
    assert "raised in its creation task, ray::mod.f()" in str(error)


CODES = {
    "task_unschedulable": errors.TaskUnschedulableError,
    "device_deadlock": errors.DeviceDeadlockError,
    "actor_unschedulable": errors.ActorUnschedulableError,
    "worker_crashed": errors.WorkerCrashedError,
    "device_failed": errors.DeviceFailedError,
    "actor_died": errors.ActorDiedError,
    "actor_unavailable": errors.ActorUnavailableError,
    "owner_died": errors.OwnerDiedError,
    "object_lost": errors.ObjectLostError,
    "object_freed": errors.ObjectFreedError,
    "store_full": errors.ObjectStoreFullError,
    "out_of_disk": errors.OutOfDiskError,
    "runtime_env": errors.RuntimeEnvSetupError,
    "daemon_died": errors.LocalRayletDiedError,
    "node_died": errors.NodeDiedError,
    "cancelled": errors.TaskCancelledError,
    "timeout": errors.GetTimeoutError,
    "system": errors.RaySystemError,
}


@pytest.mark.parametrize(("code", "kind"), CODES.items())
def test_codes_of_the_runtime(code: str, kind: type[errors.RayError]) -> None:
    error = error_from_runtime(code, "because of this", object_id=b"\xab", actor_id="cd", task_id="ef", unused=1)
    assert type(error) is kind
    assert "because of this" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert type(error_from_runtime(code, "")) is kind


def test_details_of_the_runtimes_errors() -> None:
    died: Any = error_from_runtime("actor_died", "killed", actor_id=b"\x01\x02", class_name="A", pid=4, preempted=True)
    assert (died.actor_id, died.preempted, died.actor_init_failed) == ("0102", True, False)
    assert "class_name: A" in str(died)
    known = {"class_name": "A", "name": "n", "namespace": "s", "node_id": "ee", "ip": "10.0.0.3", "pid": 5}
    for cause in (None, task_error(ValueError("in __init__"))):
        told: Any = pickle.loads(pickle.dumps(error_from_runtime("actor_died", "killed", cause, actor_id="01", **known)))
        attributes = (told.class_name, told.name, told.namespace, told.node_id, told.node_ip_address, told.pid)
        assert attributes == ("A", "n", "s", "ee", "10.0.0.3", 5) and not told.never_started
        assert (told.actor_id, told.actor_init_failed) == ("01", cause is not None)
    unborn: Any = error_from_runtime("actor_died", "its job ended", actor_id="01", class_name="A", never_started=True)
    assert unborn.never_started and "The actor never ran" in str(unborn)
    cause = task_error(ValueError("in __init__"))
    born_dead: Any = error_from_runtime("actor_died", "", cause, actor_id="03")
    assert (born_dead.actor_id, born_dead.actor_init_failed) == ("03", True)
    lost: Any = error_from_runtime("object_lost", "its node died", object_id=b"\xab\xcd", call_site="a|b")
    assert (lost.object_ref_hex, lost.call_site) == ("abcd", "a\nb")
    cancelled: Any = error_from_runtime("cancelled", "", task_id="ef")
    assert (cancelled.task_id, str(cancelled)) == ("ef", "Task: TaskID(ef) was cancelled.")


def test_an_unknown_code_is_a_system_error() -> None:
    error = error_from_runtime("on_fire", "hot")
    assert type(error) is errors.RaySystemError
    assert "hot" in str(error)
    assert "'on_fire'" in str(error)


def test_the_reason_a_value_cannot_be_made_again_is_named() -> None:
    for reason in errors.ErrorType:
        error = errors.ObjectReconstructionFailedError("ab", reason)
        assert f"[{reason.name.removeprefix('OBJECT_UNRECONSTRUCTABLE_')}]" in str(error)
        assert error.reason_message != "no reason was given"


def test_python_prints_a_raised_task_error_once() -> None:
    raised = failure(raise_in_user_code).as_instanceof_cause()
    text = "".join(traceback.format_exception(raised))
    assert text.count("in raise_in_user_code") == 1


def test_a_task_catches_what_a_program_imports_by_oxirays_own_name() -> None:
    program = (
        "import oxiray\n"
        "from oxiray.exceptions import RayTaskError\n"
        "oxiray.init(num_cpus=1, log_to_driver=False)\n"
        "@oxiray.remote\n"
        "def fails():\n"
        "    raise ValueError('no')\n"
        "@oxiray.remote\n"
        "def catches():\n"
        "    try:\n"
        "        oxiray.get(fails.remote())\n"
        "    except RayTaskError:\n"
        "        return 'caught'\n"
        "print(oxiray.get(catches.remote()))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "caught\n", done.stderr
