"""Functions that run in other processes.

Invariants:
1. A function is serialized once a connection and named by its content's hash from then on.
2. What every call of one function with one set of options shares is prepared once (`_core.Caller`), so
   that a call costs its arguments and little else; what other options do not change is shared among them.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from oxiray import _core, _gpu_memory, _options, _pickling, _serialization, _session, _strategies, _tracing

logger = logging.getLogger("ray")

#: Called with what is called, its resources and its strategy at each call in this process, where a library sets it under
#: this name of Ray's: Tune refuses what a trial's placement group has no room for. What it raises, `remote()` raises.
_task_launch_hook: Callable[[Launched, dict[str, float], Any], None] | None = None

#: A function's code larger than this is refused, in bytes: it carries data that belongs into `put`.
CODE_BYTES_LIMIT = 100_000_000
#: One larger than this is told of.
CODE_BYTES_USUAL = 10_000_000


class Launched(NamedTuple):
    """What is called, with the names that Ray's descriptors have."""

    module_name: str
    #: Empty for a function.
    class_name: str
    function_name: str


def code_of(target: Any) -> bytes:
    """`target`, a function or class, as bytes.

    Raises `TypeError` where it cannot be serialized, `ValueError` where it is too large.
    """
    is_class = inspect.isclass(target)
    name = _serialization.name_of(target)
    try:
        body = _pickling.dumps(target)
    except Exception as error:
        subject = f"the actor class {name}.__init__" if is_class else f"the function {name}"
        raise _serialization.refused(subject, target, error) from error
    # As messages name it in Ray.
    what = f"actor {target.__name__}" if is_class else f"remote function {target.__module__}.{target.__name__}"
    if len(body) > CODE_BYTES_LIMIT:
        raise ValueError(
            f"The {what} is too large ({len(body) >> 20} MiB > FUNCTION_SIZE_ERROR_THRESHOLD={CODE_BYTES_LIMIT >> 20} MiB). "
            "Check that its definition is not implicitly capturing a large array or other object in scope: put() that object "
            "and pass the reference as an argument"
        )
    if len(body) > CODE_BYTES_USUAL:
        logger.warning(
            "The %s is very large (%d MiB). Check that its definition is not implicitly capturing a large array or other "
            "object in scope: every worker that runs it gets a copy. put() that object and pass the reference as an argument",
            what,
            len(body) >> 20,
        )
    return body


def _shape_of(parameter: inspect.Parameter) -> inspect.Parameter:
    default = parameter.default if parameter.default is parameter.empty else None
    return inspect.Parameter(parameter.name, parameter.kind, default=default)


class Positions:
    """How many positional arguments a function takes, and its signature for everything less usual."""

    def __init__(self, function: Any, *, skip_first: bool = False) -> None:
        self.least: int = 0
        self.most: int | None = None
        self.bind: Any = None
        self.signature: inspect.Signature | None = None
        try:
            parameters = list(inspect.signature(function).parameters.values())[1 if skip_first else 0 :]
        except (TypeError, ValueError):
            return
        # Handles travel, and annotations or defaults may be anything: only the shape is kept.
        self.signature = inspect.Signature([_shape_of(parameter) for parameter in parameters])
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        keyword_needed = any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters)
        self.bind = self.signature.bind
        # A keyword that must be given makes every call go through `bind`.
        self.least = sys.maxsize if keyword_needed else sum(1 for p in positional if p.default is p.empty)
        if not any(p.kind is p.VAR_POSITIONAL for p in parameters):
            self.most = len(positional)


def is_generator_function(function: Any) -> bool:
    """Whether calls of `function` yield their results, unless told otherwise."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def stream_terms(num_returns: int | str, ahead: int, per_yield: int) -> tuple[int, int] | None:
    """How results come one by one, as the runtime is told: unread ones at most (0 for any number), and how many a yield."""
    return (max(ahead, 0), per_yield) if num_returns == "streaming" else None


class RemoteFunction:
    """A function decorated with `@remote`: call it with `.remote(...)`."""

    def __init__(self, function: Any, options: _options.TaskOptions, shared: dict[str, Any] | None = None) -> None:
        self._function = function
        self._function_name = f"{function.__module__}.{function.__qualname__}"
        self._options = options
        # By everything made through `.options()`: the function is looked at and serialized once.
        self._shared: dict[str, Any] = {"positions": Positions(function), "codes": {}} if shared is None else shared
        self._caller: Any = None
        self._generation = -1
        functools.update_wrapper(self, function)

    def __call__(self, /, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"Remote functions cannot be called directly: call `{self._function.__name__}.remote(...)` to run it "
            f"elsewhere, or `{self._function.__name__}._function(...)` to run it here"
        )

    def bind(self, /, *args: Any, **kwargs: Any) -> Any:
        """The call as a node of a graph, made by `execute()`."""
        from oxiray import dag

        return dag.FunctionNode(self, args, kwargs)

    def remote(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs the function in another process; returns a reference to its result (a list for several, None for none)."""
        if self._generation != _session.generation or self._caller is None:
            self._prepare()
        if _task_launch_hook is not None:
            launched = Launched(self._function.__module__, "", self._function.__name__)
            _task_launch_hook(launched, _gpu_memory.outward(self._options.resources), _strategies.taken(self._options))
        try:
            return self._caller.call(args, kwargs)
        except TypeError as error:
            raise _serialization.of_arguments(error, args, kwargs, _serialization.name_of(self._function)) from None

    def options(self, **options: Any) -> RemoteFunction:
        """The same function with other options."""
        merged = _options.task_options(options, in_options=True, base=self._options)
        return RemoteFunction(self._function, merged, self._shared)

    def _remote(self, args: Any = (), kwargs: Any = None, **options: Any) -> Any:
        target = self.options(**options) if options else self
        return target.remote(*args, **(kwargs or {}))

    def _prepare(self) -> None:
        options = self._options
        _options.check_submittable(options)
        stream = stream_terms(
            options.num_returns, options.generator_backpressure_num_objects, options.num_objects_per_yield
        )
        _session.ensure()
        positions = self._shared["positions"]
        is_traced = _tracing.is_on
        body, code_hash = self._code(is_traced)
        caller = _core.Caller.of_function(
            hash=code_hash,
            body=body,
            name=self._function.__name__,
            label=options.name or "",
            resources=options.resources,
            environment=self._environment(),
            fresh=options.fresh,
            results=1 if stream or options.num_returns == "dynamic" else int(options.num_returns),
            max_calls=options.max_calls,
            retries=options.max_retries,
            retry_exceptions=_options.retried_as_sent(options.retry_exceptions, "python"),
            stream=stream,
            least_arguments=0 if is_traced else positions.least,
            most_arguments=None if is_traced else positions.most,
            bind=None if is_traced else positions.bind,
            strategy=_strategies.told(options, self._function.__name__),
            urgency=(options.priority, options.preemptible),
        )
        if is_traced:
            caller = _tracing.Caller(caller, _tracing.Call(self._function_name), positions.bind)
        self._caller = caller
        self._generation = _session.generation

    def _code(self, is_traced: bool) -> tuple[bytes, bytes]:
        """The function as bytes, and their hash."""
        options = self._options
        is_gathering = options.num_returns == "dynamic"
        kind = (is_traced, is_gathering, is_gathering and bool(options.retry_exceptions))
        codes = self._shared["codes"]
        if kind not in codes:
            function = self._function
            if is_gathering:
                from oxiray._gathering import Gathering

                function = Gathering(function, is_retried=bool(options.retry_exceptions))
            if is_traced:
                function = _tracing.Traced(function, self._function_name)
            body = code_of(function)
            import hashlib  # it takes 2 ms, which workers and the start of a driver need not wait for

            codes[kind] = body, hashlib.blake2b(body, digest_size=16).digest()
        known: tuple[bytes, bytes] = codes[kind]
        return known

    def _environment(self) -> dict[str, Any]:
        asked, known = self._options.runtime_env, self._shared.get("environment")
        if known is None or known[0] != _session.generation or known[1] is not asked:
            known = (_session.generation, asked, _session.described_environment(asked, self._function))
            self._shared["environment"] = known
        return known[2]

    def __reduce__(self) -> Any:
        return RemoteFunction, (self._function, self._options)

    def __repr__(self) -> str:
        return f"RemoteFunction({self._function_name})"


def make(function: Any, given: dict[str, Any]) -> RemoteFunction:
    """The remote form of `function`."""
    if inspect.iscoroutinefunction(function):
        raise ValueError(
            f"'async def' should not be used for remote tasks, as {function.__qualname__} does: make it an actor's method, or "
            "wrap it, `asyncio.run(...)`, in a plain function"
        )
    is_generator = is_generator_function(function)
    return RemoteFunction(function, _options.task_options(given, is_generator=is_generator))
