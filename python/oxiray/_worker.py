"""What a worker process does in Python: take on its environment, load code, describe errors.

Invariant: nothing of the user's is imported or run before `become` has set the environment.
"""

from __future__ import annotations

import _signal  # Python's own, without the enumerations that `signal` makes of what it returns
import contextlib
import faulthandler
import functools
import inspect
import os
import pickle
import platform
import re
import sys
from collections.abc import Mapping
from types import FunctionType, MethodType
from typing import Any, NoReturn

from oxiray import (
    _cancellation,
    _core,
    _environment,
    _failures,
    _gathering,
    _logging,
    _pickling,
    _session,
    _switches,
    _tracing,
    _worker_environment,
    _worker_exit,
    exceptions,
)
from oxiray._async_context import has_async_methods

#: A thread that wants the interpreter waits no longer than this for a busy one, in seconds.
_SWITCH_INTERVAL = 1e-4
#: How much of an actor's `repr` is shown.
_REPR_CHARACTERS_MAX = 500
#: Threads that serve one actor at most; more concurrency than this queues.
_THREADS_MAX = 1000


def prepare() -> None:
    """Done once in the template, for all workers to inherit."""
    import oxiray  # noqa: F401  what tasks use without importing it

    sys.setswitchinterval(_SWITCH_INTERVAL)
    with contextlib.suppress(ValueError):
        # A worker says what is wrong with them.
        _switches.read()
    import oxiray._sites
    import oxiray._stacks
    import oxiray.util.accelerators  # noqa: F401


def print_as_workers_do() -> None:
    """Done in the template when it has imported everything: its workers print lines, and log messages alone."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    _logging.be_in_worker()


def main(descriptor: int) -> NoReturn:
    """Serves as a worker, then ends the process without the template's finalizers."""
    status = 0
    try:
        # The stack of a crash goes to standard error.
        faulthandler.enable()
        status = _core.serve(descriptor)
    except SystemExit as leaving:
        status = _worker_exit.status_of(leaving)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    _finish()
    os._exit(status)


#: Whether children of the program that have ended vanish without being waited for, as Ray's documentation tells.
_REAPS_CHILDREN = "RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper"


def begin() -> None:
    """Done once in a worker that has its environment and its connection, before it runs anything."""
    _switches.configure()
    if _session.job_environment:
        _core.note_environment(_environment.as_json(_session.job_environment))
    if os.environ.get(_REAPS_CHILDREN, "").lower() in ("1", "true"):
        _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
    _signal.signal(_signal.SIGTERM, _leave)
    if "PYTHONBREAKPOINT" not in os.environ:
        sys.breakpointhook = _stop
    if "OXIRAY_GPU_MEMORY" in os.environ:
        from oxiray import _gpu_memory

        _gpu_memory.cap()
    global _has_begun
    _has_begun = True
    if _is_preemptible:
        _listen()


def _stop(*_: object, **__: object) -> None:
    """What `breakpoint()` does: the process has no terminal of its own."""
    from oxiray import _debugger

    _debugger.stop_at(sys._getframe().f_back)


#: Whether what this process is there for may end early, and whether it may be told so.
_is_preemptible = False
_has_begun = False


def _listen() -> None:
    from oxiray import _events

    _events.start()


def _leave(*_: object) -> NoReturn:
    """Ends the process as `sys.exit` does, so that what the program registered with `atexit` runs."""
    raise SystemExit(_core.terminate())


def _finish() -> None:
    global _actor
    import atexit

    # One whose constructor has failed or goes on has nothing to tidy up.
    if _actor is not None and _is_made:
        taken, _actor = [_actor], None
        _worker_exit.end_actor(taken)
    try:
        atexit._run_exitfuncs()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    flush()


def flush() -> None:
    """Writes out what the standard streams hold back."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass


def tell_of_prints() -> None:
    """Has each standard stream ask for a label before the program writes to it next: a call that prints is found again.

    What a stream has as its own `write` is in force once, so that all writes but the first cost what they always do.
    """
    for stream, is_error in ((sys.__stdout__, False), (sys.__stderr__, True)):
        if stream is not None:
            vars(stream)["write"] = functools.partial(_label_and_write, stream, is_error)


def _label_and_write(stream: Any, is_error: bool, text: str) -> int:
    vars(stream).pop("write", None)
    _core.label_print(is_error)
    written: int = stream.write(text)
    return written


#: What is left of a reference to a variable that is not set.
_UNSET = re.compile(r"\$\{[A-Za-z0-9_]+\}")
_prepared_setup: bytes | None = None
#: What the job has calls be spans by.
_tracing_hook: Any = None
_home: tuple[bytes, bool, int] = (b"", False, 0)


def become(
    variables: list[tuple[str, str | None]],
    setup: bytes,
    inherited: list[tuple[str, str | None]],
    fields: str,
    session: str,
    home: tuple[bytes, bool, int],
    preemptible: bool,
) -> str | None:
    """Sets and removes environment variables, then takes over the driver's import path and directory.

    `inherited` and `fields` are the runtime environment, which tasks made here start from; `home` is the
    placement group that this process is in, whether what is made here runs there too, and how urgent it is. One that is
    `preemptible` listens for the word to end early.
    Returns what is wrong with it, or None.
    """
    global _prepared_setup, _home, _is_preemptible, _tracing_hook
    _is_preemptible = preemptible
    if preemptible and _has_begun:
        _listen()
    if home != _home:
        # Where and when calls run may depend on it: what was prepared for the other is prepared anew.
        _home = home
        _session.generation += 1
    # Those that refer to others come last, so that a task's variables can be made of its job's.
    for name, value in sorted(variables, key=_refers_to_others):
        if value is None:
            os.environ.pop(name, None)
        elif "$" in value:
            # `${NAME}` stands for what was set before, so that paths can be added to, and for nothing where nothing was.
            os.environ[name] = _UNSET.sub("", os.path.expandvars(value))
        else:
            os.environ[name] = value
    if fields or any(name in _switches.VARIABLES for name, _ in variables):
        _switches.forget()
    own = {name: os.environ.get(name, value or "") for name, value in inherited}
    _session.job_environment = _worker_environment.settled(fields, own)
    if setup and setup != _prepared_setup:
        _prepared_setup = setup
        wanted = pickle.loads(setup)
        if wrong := _wrong_version(wanted["python"], wanted["interpreter"]):
            return wrong
        _session.driver_side = (wanted["interpreter"], wanted["sys_path"], wanted["directory"])
        if wanted["logging"] is not None:
            _logging.configure(_logging.LoggingConfig(**wanted["logging"]))
        _tracing_hook = wanted["tracing"]
        _worker_environment.import_what_the_driver_does(wanted["sys_path"], wanted["libraries"])
        try:
            os.chdir(wanted["directory"])
        except OSError:
            pass  # the driver's directory may be gone; relative paths are then the task's own problem
    wrong = _worker_environment.apply(fields, session) if fields else None
    if (preload := sys.modules.get("oxiray._preload")) is not None:
        # The template may have imported numeric libraries that count on one thread until they are told.
        preload.finish([])
    if wrong is None and (_tracing_hook is not None or _tracing.is_on):
        # After the environment, which may bring its module.
        wrong = _trace_calls()
    return wrong


def _trace_calls() -> str | None:
    was_on = _tracing.is_on
    wrong = _tracing.used_in_worker(_tracing_hook)
    if _tracing.is_on != was_on:
        # Calls that were prepared for the other are prepared anew.
        _session.generation += 1
    return wrong


def _refers_to_others(variable: tuple[str, str | None]) -> bool:
    return variable[1] is not None and "$" in variable[1]


#: The version of this interpreter.
_OWN_VERSION = platform.python_version()


def _wrong_version(driver: str, interpreter: str) -> str | None:
    """What is wrong where this process cannot read what the driver pickles: patch levels may differ, the rest not."""
    own = _OWN_VERSION
    if own == driver or own.split(".")[:2] == driver.split(".")[:2] or "py_executable" in _session.job_environment:
        return None
    return (
        f"the program runs Python {driver} ({interpreter}), and the host {platform.node()} has Python {own} "
        f"({sys.executable}) in its place: have {interpreter} there, or install Oxiray for Python {driver} and start the node "
        "with its `oxiray` command"
    )


def load_function(body: bytes) -> Any:
    """The function in `body`."""
    return pickle.loads(body)


#: The actor that this process is, once its constructor runs, and what handles of it are made of.
_actor: Any = None
#: Whether its constructor has returned.
_is_made = False
_event_loops: Any = None
own_traits = b""


def construct(body: bytes, args: tuple[Any, ...], kwargs: dict[str, Any], traits: bytes) -> tuple[Any, str | None]:
    """The actor, an object of the class in `body`, and what its output is named by, where not by the class."""
    global _actor, _event_loops, _is_made, own_traits
    own_traits = traits
    actor_class = pickle.loads(body)
    carrier = kwargs.pop(_tracing.CONTEXT, None)
    # Known before its constructor runs, so that errors of that name it.
    _actor = actor = actor_class.__new__(actor_class)

    def initialize() -> Any:
        # Called by itself, since programs written for Ray may return something from it, or write it as async.
        return actor_class.__init__(actor, *args, **kwargs)

    if carrier is not None:
        call = _tracing.Call("__init__", actor_class.__name__)
        initialize = functools.partial(_tracing.ran, initialize, call, carrier, (), {})
    if has_async_methods(actor_class):
        from oxiray import _async_actor

        _event_loops = _async_actor.EventLoops()
        _event_loops.run(initialize)
    else:
        initialize()
    _is_made = True
    return actor, None if actor_class.__repr__ is object.__repr__ else _own_name()


def event_loops() -> list[Any]:
    """The loops that run the calls of an actor with async methods."""
    return [] if _event_loops is None else _event_loops.loops()


def _own_name() -> str | None:
    """How the actor calls itself, where it can."""
    try:
        return repr(_actor)[:_REPR_CHARACTERS_MAX]
    except Exception:
        return None


def serve_beside(concurrency: int, groups: list[tuple[str, int]]) -> Any:
    """Starts what runs an actor's calls beside the main thread: threads, or the event loops that are returned."""
    if _event_loops is not None:
        _event_loops.divide(concurrency, groups)
        return _event_loops
    _core.divide_calls([name for name, _ in groups])
    # The main thread is the first that serves calls of no group.
    wanted: list[tuple[str | None, int]] = [(None, concurrency - 1), *groups]
    room = _THREADS_MAX
    for name, count in wanted:
        for _ in range(min(count, room)):
            import threading

            room -= 1
            threading.Thread(target=_core.serve_too, args=(name,), name=f"oxiray-call-{name or ''}", daemon=True).start()
    return None


def method(actor: Any, name: str) -> tuple[Any, bool]:
    """The method to call on `actor`, which may be one of the runtime's own, and whether further calls of that name get the same.

    A function of the class is the same for all calls, as in Ray: what becomes of the class later changes nothing for an actor
    that has been called.
    """
    for base in type(actor).__mro__:
        if name in base.__dict__:
            function = base.__dict__[name]
            if isinstance(function, FunctionType):
                return MethodType(function, actor), True
            break
    return _other_method(actor, name), False


def _other_method(actor: Any, name: str) -> Any:
    if name == "__ray_ready__":
        return lambda: True
    if name == "__ray_call__":
        return lambda function, *args, **kwargs: function(actor, *args, **kwargs)
    if name == _gathering.GATHER:
        return lambda wanted, *args, **kwargs: _gathering.Gathering(method(actor, wanted)[0])(*args, **kwargs)
    if name == _gathering.HOLD:
        from oxiray import _device_objects

        return lambda wanted, transport, *args, **kwargs: _device_objects.held_call(method(actor, wanted)[0])(transport, *args, **kwargs)
    if name == _tracing.TRACE:
        return lambda carrier, wanted, call, *args, **kwargs: _tracing.ran(method(actor, wanted)[0], call, carrier, args, kwargs)
    if name == "__ray_terminate__":
        return _worker_exit.exit_actor
    if name in getattr(actor, "__dict__", ()):
        # A handle offers the methods of the class: an attribute of the object with the same name hides none of them.
        of_class = inspect.getattr_static(type(actor), name, None)
        if callable(of_class):
            return of_class.__get__(actor, type(actor)) if hasattr(of_class, "__get__") else of_class
    return getattr(actor, name)


@functools.lru_cache(maxsize=1)
def _own_class(traits: bytes) -> str:
    """The qualified name of the class that the handles of an actor tell of."""
    return str(pickle.loads(traits).qualified)


def function_name(facts: Mapping[str, Any]) -> str:
    """The qualified name of what runs by the `facts` of this process; what is of a script has the script's name for module."""
    function = facts["function"]
    if function is None:
        return f"{_own_class(own_traits)}.{facts['function_name']}" if own_traits else str(facts["function_name"])
    module, code = function.__module__, getattr(function, "__code__", None)
    if module == "__main__" and code is not None:
        module = os.path.splitext(os.path.basename(code.co_filename))[0]
    return f"{module}.{function.__name__}"


def describe(name: str, error: BaseException, task: str) -> bytes:
    """The pickled exception that callers of `name` are to see; `task` is the call's identifier."""
    actor_repr, actor_id = None if _actor is None else _own_name(), _core.context()["actor_id"]
    process = (os.getpid(), _failures.own_address(), actor_repr, actor_id)
    if "OXIRAY_GPU_MEMORY" in os.environ:
        from oxiray import _gpu_memory

        _gpu_memory.explain(error)
    if getattr(error, "__dict__", {}).pop("_is_of_argument", False):
        return _pickling.dumps(_failures.from_dependency(name, error, *process))
    of_device = _failures.device_error(error)
    if of_device is not None:
        _core.device_error_raised(of_device)
    if "RAY_DEBUG_POST_MORTEM" in os.environ:
        from oxiray import _debugger

        if _debugger.waits_for(error):
            _debugger.post_mortem(error)
    seen = _cancellation.as_cancelled(error, task)
    told = _core.device_errors(task)
    described = _failures.from_current_exception(name, error, *process, None if seen is error else seen, told)
    if _actor is not None and not _is_made and isinstance(error, Exception):
        # Callers are told, and there may be none: an actor that works from its constructor on is often never called.
        print(f"Exception raised in creation task: {exceptions.ActorDiedError(described)}", file=sys.stderr, flush=True)
    return _pickling.dumps(described)


def wants_retry(wanted: bytes, error: BaseException) -> bool:
    """Whether the owner asked to retry this exception."""
    asked = pickle.loads(wanted)
    if isinstance(error, exceptions.RayTaskError) and error.cause is not None:
        error = error.cause
    if isinstance(error, exceptions.UserCodeException) and error.__cause__ is not None:
        error = error.__cause__
    return isinstance(error, Exception) if asked is True else isinstance(error, tuple(asked))
