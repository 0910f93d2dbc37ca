"""Objects that live in other processes.

Invariants:
1. Calls through one process's handles of an actor run in the order made.
2. An actor that nobody else can reach ends with the last handle in the process that made it.
"""

from __future__ import annotations

import inspect
import logging
import pickle
from typing import Any, NoReturn

import cloudpickle

from oxiray import _core, _option_rules, _options, _session, _strategies
from oxiray._async_context import has_async_methods
from oxiray._worker_exit import exit_actor as exit_actor
from oxiray.remote_function import Positions, code_of, is_generator_function, stream_terms

logger = logging.getLogger("oxiray")

#: Methods that every actor has.
_BUILT_IN = ("__ray_ready__", "__ray_call__", "__ray_terminate__")
_METHOD_OPTIONS = (
    "num_returns",
    "name",
    "concurrency_group",
    "retry_exceptions",
    "max_task_retries",
    "enable_task_events",
    "_generator_backpressure_num_objects",
)


class ActorClassInheritanceException(TypeError):
    """A class derives from one decorated with `@remote`."""


def method(**options: Any) -> Any:
    """Decorates a method with defaults for its calls, such as `num_returns`."""
    _option_rules.check_method(options)

    def mark(function: Any) -> Any:
        _option_rules.check_streaming(options.get("num_returns"), is_generator=is_generator_function(function))
        function.__oxiray_method__ = options
        return function

    return mark


_warned: set[str] = set()


def _warn_of_what_is_not_there(options: _options.ActorOptions) -> None:
    """Says once what an actor asked for and will not have."""
    for name in ("max_restarts", "max_task_retries", "concurrency_groups"):
        if getattr(options, name) and name not in _warned:
            _warned.add(name)
            logger.warning("%s is accepted without effect: this version of Oxiray does not restart actors or group their calls", name)


def _methods_of(cls: type) -> dict[str, dict[str, Any]]:
    """Every method that a handle offers, with its options and shape."""
    methods: dict[str, dict[str, Any]] = {}
    for name, function in inspect.getmembers(cls, callable):
        if name.startswith("__") and name not in ("__call__", "__len__", "__getitem__", "__enter__", "__exit__"):
            continue
        static = isinstance(inspect.getattr_static(cls, name), (staticmethod, classmethod))
        options = getattr(function, "__oxiray_method__", {})
        shape = {"results": options.get("num_returns"), "retried": options.get("retry_exceptions") or False}
        if is_generator_function(function):
            shape["yields"] = True
            shape["ahead"] = options.get("_generator_backpressure_num_objects") or -1
            shape["per_yield"] = options.get("_num_objects_per_yield") or 1
        if inspect.isfunction(function) or inspect.ismethod(function):
            positions = Positions(function, skip_first=not static)
            shape.update(least=positions.least, most=positions.most, signature=positions.signature)
        methods[name] = shape
    return methods


class ActorMethod:
    """A method of an actor: call it with `.remote(...)`. It keeps the actor as a handle does."""

    __slots__ = ("_actor_id", "_caller", "_generation", "_name", "_results", "_shape")

    def __init__(self, actor_id: Any, name: str, shape: dict[str, Any], results: int | str | None = None) -> None:
        self._actor_id = actor_id
        self._name = name
        self._shape = shape
        results = shape.get("results") if results is None else results
        self._results = ("streaming" if shape.get("yields") else 1) if results is None else results
        self._prepare()

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"Actor methods cannot be called directly: call `{self._name}.remote(...)` on the handle instead"
        )

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the method in the actor's process; returns a reference to its result."""
        if self._generation != _session.generation:
            self._prepare()
        return self._caller.call(args, kwargs)

    def options(self, **options: Any) -> ActorMethod:
        """The same method with other options."""
        for option in options:
            if option not in _METHOD_OPTIONS:
                raise TypeError(
                    f"ActorMethod.options() got an unexpected keyword argument '{option}': a method uses what its actor "
                    f"holds; ask for resources where the actor is made. A method takes {', '.join(_METHOD_OPTIONS)}"
                )
        shape = self._shape
        _option_rules.check_streaming(options.get("num_returns"), is_generator=bool(shape.get("yields")))
        ahead = options.get("_generator_backpressure_num_objects")
        if ahead is not None:
            _option_rules.check_method({"_generator_backpressure_num_objects": ahead})
            shape = {**shape, "ahead": ahead}
        return ActorMethod(self._actor_id, self._name, shape, options.get("num_returns", self._results))

    def _remote(self, args: Any = (), kwargs: Any = None, **options: Any) -> Any:
        target = self.options(**options) if options else self
        return target.remote(*args, **(kwargs or {}))

    def _prepare(self) -> None:
        _session.ensure()
        shape = self._shape
        stream = stream_terms(self._results, shape.get("ahead", -1), shape.get("per_yield", 1))
        retried = shape.get("retried") or False
        self._caller = _core.Caller.of_method(
            actor=self._actor_id,
            name=self._name,
            results=1 if stream else int(self._results),
            retry_exceptions=cloudpickle.dumps(retried) if retried else b"",
            stream=stream,
            least_arguments=shape.get("least", 0),
            most_arguments=shape.get("most"),
            bind=shape["signature"].bind if shape.get("signature") else None,
        )
        self._generation = _session.generation


class ActorHandle:
    """An actor, as everybody but itself sees it."""

    def __init__(
        self, actor_id: Any, class_name: str, methods: dict[str, dict[str, Any]], hold: Any = None
    ) -> None:
        self._actor_id = actor_id
        self._class_name = class_name
        self._methods = methods
        # Counted as one handle until the last reference to it goes.
        self._hold = _core.Hold(actor_id) if hold is None else hold

    @property
    def _ray_actor_id(self) -> Any:
        return self._actor_id

    def __getattr__(self, name: str) -> ActorMethod:
        methods = self.__dict__.get("_methods", {})
        if name in methods or name in _BUILT_IN:
            # Kept on the handle, so that the next look-up is a plain one.
            bound = self.__dict__[name] = ActorMethod(self._actor_id, name, methods.get(name, {}))
            return bound
        raise AttributeError(
            f"'{self.__dict__.get('_class_name', 'actor')}' actor has no method '{name}'; it has: "
            f"{', '.join(sorted(methods)) or 'none'}. Attributes are reached through methods"
        )

    def __dir__(self) -> list[str]:
        return [*self._methods, *_BUILT_IN]

    def __hash__(self) -> int:
        return hash(self._actor_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and other._actor_id == self._actor_id

    def __repr__(self) -> str:
        return f"Actor({self._class_name}, {self._actor_id.hex()})"

    def __reduce__(self) -> Any:
        _core.share_actor(self._actor_id)
        return ActorHandle, (self._actor_id, self._class_name, self._methods)


class ActorClass:
    """A class decorated with `@remote`: make an actor of it with `.remote(...)`."""

    def __init__(self, cls: type, options: _options.ActorOptions, code: dict[str, Any] | None = None) -> None:
        self._class = cls
        self._options = options
        self._code = {} if code is None else code
        self.__name__ = cls.__name__
        self.__qualname__ = cls.__qualname__
        self.__module__ = cls.__module__
        self.__doc__ = cls.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"Actors cannot be instantiated directly: call `{self.__name__}.remote(...)` to make one in a process of its own"
        )

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        raise ActorClassInheritanceException(
            f"{self.__name__} is decorated with @remote, and actor classes cannot be derived from: derive from the plain "
            "class and decorate each class that is to be an actor"
        )

    def options(self, **options: Any) -> ActorClass:
        """The same class with other options."""
        return ActorClass(self._class, _options.actor_options(options, in_options=True, base=self._options), self._code)

    def remote(self, *args: Any, **kwargs: Any) -> ActorHandle:
        """Makes an actor; its constructor gets the arguments. Returns at once, with a handle."""
        options = self._options
        if "methods" not in self._code:
            self._code["methods"] = _methods_of(self._class)
            self._code["positions"] = Positions(self._class)
            self._code["is_async"] = has_async_methods(self._class)
        _options.check_submittable(options, is_async=self._code["is_async"])
        if (bind := self._code["positions"].bind) is not None:
            bind(*args, **kwargs)
        _session.ensure()
        _warn_of_what_is_not_there(options)
        if "body" not in self._code:
            self._code["body"] = code_of(self._class, "actor class")
        methods = self._code["methods"]
        actor_id, hold, existing = _core.create_actor(
            class_name=self.__name__,
            body=self._code["body"],
            args=args,
            kwargs=kwargs,
            placement=options.placement,
            running=options.running,
            environment=_session.described_environment(options.runtime_env),
            name=options.name or "",
            namespace=options.namespace or "",
            detached=(options.lifetime or _session.default_lifetime) == "detached",
            get_if_exists=options.get_if_exists,
            max_concurrency=options.concurrency(is_async=self._code["is_async"]),
            handle=cloudpickle.dumps((self.__name__, methods)),
            strategy=_strategies.told(options, self.__name__),
        )
        if existing is not None:
            return from_bytes(actor_id, existing, hold)
        return ActorHandle(actor_id, self.__name__, methods, hold)

    def _remote(self, args: Any = (), kwargs: Any = None, **options: Any) -> ActorHandle:
        target = self.options(**options) if options else self
        return target.remote(*args, **(kwargs or {}))

    def __reduce__(self) -> Any:
        return ActorClass, (self._class, self._options)

    def __repr__(self) -> str:
        return f"ActorClass({self.__name__})"


def from_bytes(actor_id: Any, handle: bytes, hold: Any = None) -> ActorHandle:
    """The handle that another process described."""
    class_name, methods = pickle.loads(handle)
    return ActorHandle(actor_id, class_name, methods, hold)


def make(cls: type, given: dict[str, Any]) -> ActorClass:
    """The remote form of `cls`."""
    if issubclass(cls, ActorClass):
        raise TypeError(f"{cls.__name__} is decorated with @remote already")
    return ActorClass(cls, _options.actor_options(given))
