"""Spans of OpenTelemetry around calls, for programs that name a hook: `init(_tracing_startup_hook="module:function")`.

The hook runs once in the driver and in each of its workers, and installs a tracer provider there. Each call is then a span where it
is made, and one where it runs, which is its child; so spans that the program itself makes inside a task belong to the trace of who
called it. Names and attributes are those of Ray 2.60 (`ray.util.tracing`).

Invariants:
1. Without a hook, calls go the way that they go without this module.
2. The context of a call travels as its first argument, which the called function does not see.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

#: Whether calls of this process are spans.
is_on = False
#: The method of every actor that calls another one, named second, in the context that comes first.
TRACE = "__oxiray_trace__"
#: The keyword under which the constructor of an actor gets its context.
CONTEXT = "_ray_trace_ctx"
#: What ran here: a tracer provider can be installed only once in a process.
_ran: set[Any] = set()


def use(hook: str | Callable[[], Any] | None) -> None:
    """Has calls from here on be spans, after the hook; or no more, without one. Raises what importing and calling it raises."""
    global is_on
    if hook is not None and hook not in _ran:
        try:
            import opentelemetry.trace  # noqa: F401
        except ImportError as error:
            raise ImportError(
                f"_tracing_startup_hook={hook!r} needs OpenTelemetry, which this interpreter does not have ({error}): "
                "`pip install opentelemetry-sdk` there"
            ) from None
        _named(hook)()
        _ran.add(hook)
    is_on = hook is not None


def used_in_worker(hook: str | Callable[[], Any] | None) -> str | None:
    """The same in a worker; returns what is wrong, or None."""
    try:
        use(hook)
    except Exception as error:
        return f"the hook _tracing_startup_hook={hook!r} raised {type(error).__name__}: {error}"
    return None


def _named(hook: str | Callable[[], Any]) -> Callable[[], Any]:
    if not isinstance(hook, str):
        return hook
    module, _, attributes = hook.partition(":")
    if not module or not attributes:
        raise ValueError(f"_tracing_startup_hook is {hook!r}: write it as 'module:function'")
    function: Any = importlib.import_module(module)
    for attribute in attributes.split("."):
        if not hasattr(function, attribute):
            raise ValueError(f"_tracing_startup_hook is {hook!r}, and {module} has no attribute {attributes!r}")
        function = getattr(function, attribute)
    called: Callable[[], Any] = function
    return called


def context() -> dict[str, str]:
    """The context of the span that this thread is in, in W3C's form."""
    from opentelemetry import propagate

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier


class Call:
    """What is told of calls of one function or method."""

    def __init__(self, function: str, of_class: str | None = None) -> None:
        self.name = function if of_class is None else f"{of_class}.{function}"
        self._facts = {"ray.remote": "function" if of_class is None else "actor", "ray.function": self.name}
        if of_class is not None:
            self._facts |= {"ray.actor_class": of_class, "ray.actor_method": function}

    def made(self) -> AbstractContextManager[Any]:
        """The span in which it is made, which is this thread's meanwhile."""
        from opentelemetry import trace

        span: AbstractContextManager[Any] = trace.use_span(self._span("ray.remote", trace.SpanKind.PRODUCER), end_on_exit=True)
        return span

    def runs(self, carrier: dict[str, str] | None) -> Any:
        """The span in which it runs, begun."""
        from opentelemetry import propagate, trace

        return self._span("ray.remote_worker", trace.SpanKind.CONSUMER, propagate.extract(carrier or {}), ("task_id", "actor_id"))

    def _span(self, where: str, kind: Any, parent: Any = None, more: tuple[str, ...] = ()) -> Any:
        from opentelemetry import trace

        from oxiray import _core

        here = _core.context()
        told = {f"ray.{name}": here[name] for name in ("job_id", "node_id", "worker_id", *more) if here[name]}
        facts = {**self._facts, "ray.pid": str(os.getpid()), **told}
        return trace.get_tracer("ray").start_span(f"{self.name} {where}", context=parent, kind=kind, attributes=facts)


@contextmanager
def constructing(of_class: str, kwargs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Makes the call of a constructor a span; yields its keywords, with the context where calls are spans."""
    if not is_on:
        yield kwargs
        return
    with Call("__init__", of_class).made():
        yield {**kwargs, CONTEXT: context()}


class Caller:
    """Makes calls as one of the runtime's does, each in a span, with its context and what else leads as first arguments."""

    def __init__(self, caller: Any, call: Call, bind: Callable[..., Any] | None, *leading: Any) -> None:
        self._caller = caller
        self._call = call
        self._bind = bind
        self._leading = leading

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Makes a call. Raises `TypeError` where the arguments do not fit, as the runtime's does."""
        if self._bind is not None:
            self._bind(*args, **kwargs)
        with self._call.made():
            return self._caller.call((context(), *self._leading, *args), kwargs)


class Traced:
    """A function as workers call it where calls are spans."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        functools.update_wrapper(self, function)
        self.__dict__.pop("__wrapped__")
        # Only now: what it took over may have attributes of these names.
        self._function = function
        self._name = name

    def __call__(self, carrier: dict[str, str], /, *args: Any, **kwargs: Any) -> Any:
        return ran(self._function, Call(self._name), carrier, args, kwargs)


def ran(function: Callable[..., Any], call: Call, carrier: dict[str, str] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the function returns, which runs in a span, as does what it yields and awaits."""
    from opentelemetry import trace

    span, later = call.runs(carrier), None
    try:
        with trace.use_span(span):
            result = function(*args, **kwargs)
        # Generators and coroutines begin when they are asked to, and the span ends with them.
        if inspect.isawaitable(result):
            later = _awaited(result, span)
        elif inspect.isasyncgen(result):
            later = _async_iterated(result, span)
        elif inspect.isgenerator(result):
            later = _iterated(result, span)
        return result if later is None else later
    finally:
        if later is None:
            span.end()


def _iterated(result: Iterator[Any], span: Any) -> Iterator[Any]:
    from opentelemetry import trace

    with trace.use_span(span, end_on_exit=True):
        yield from result


async def _awaited(result: Awaitable[Any], span: Any) -> Any:
    from opentelemetry import trace

    with trace.use_span(span, end_on_exit=True):
        return await result


async def _async_iterated(result: AsyncIterator[Any], span: Any) -> AsyncIterator[Any]:
    from opentelemetry import trace

    with trace.use_span(span, end_on_exit=True):
        async for item in result:
            yield item
