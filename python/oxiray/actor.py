"""Objects that live in other processes.

Invariants:
1. Calls through one process's handles of an actor run in the order made.
2. An actor ends with the last handle of it in any process, once its calls are answered. Handles found by the actor's
   name, and those that it has of itself, do not count.
3. An option of a method is what its call says, else its decorator, else `Class.options()`, else `@remote`.
"""

from __future__ import annotations

import inspect
import logging
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, TypeVar, Union

from oxiray import _core, _gpu_memory, _option_rules, _options, _pickling, _serialization, _session, _strategies, _tracing
from oxiray._async_context import has_async_methods
from oxiray._gathering import GATHER, HOLD
from oxiray._worker_exit import exit_actor as exit_actor
from oxiray.exceptions import ActorAlreadyExistsError
from oxiray.remote_function import Launched, Positions, code_of, is_generator_function, stream_terms

logger = logging.getLogger("ray")

#: The states of an actor, by the numbers of Ray's protocol.
_STATES = {"PENDING_CREATION": 1, "ALIVE": 2, "RESTARTING": 3, "DEAD": 4}
#: Methods that every actor has.
_BUILT_IN = ("__ray_ready__", "__ray_call__", "__ray_terminate__")
#: As `remote_function._task_launch_hook`, for actors that are made.
_actor_launch_hook: Callable[[Launched, dict[str, float], Any], None] | None = None


class ActorClassInheritanceException(TypeError):
    """A class derives from one decorated with `@remote`."""


def method(*args: Any, **options: Any) -> Any:
    """Decorates a method of an actor with defaults for its calls, as `@method` or `@method(num_returns=2)`.

    num_returns: int, "streaming", "dynamic" or None. How many references a call returns; by default 1, or a stream of them
        from a generator. "dynamic" is deprecated: one reference, whose value is a DynamicObjectRefGenerator of references to
        all that the call yielded. Use "streaming" instead.
    concurrency_group: str or None. The group of the actor's threads that runs the method; by default that of all others.
    max_task_retries: int or None. How often a call is sent again after the actor's process died, -1 for always; by
        default what the actor says.
    retry_exceptions: bool or list of exception classes. Which exceptions of the method are retried too; False by default.
    enable_task_events: bool. Without effect: the state API lists every call. True by default.
    tensor_transport: str or None. How tensors of the result get to other processes: they stay with this one until somebody asks
        for them. "auto" takes the nearest way, others are "gloo", "nccl" and "cuda_ipc"; None, the default, for the object store.
    _generator_backpressure_num_objects: int or None. How many objects of a generator may be unread before it waits; -1,
        the default, for any number.
    _num_objects_per_yield: int or None. How many references each yield returns; 1 by default.
    """
    if args and (options or len(args) > 1 or not callable(args[0])):
        raise TypeError("The @ray.method decorator is written as `@ray.method` or with keywords only, as `@ray.method(num_returns=2)`")
    _option_rules.check_method(options)

    def mark(function: Any) -> Any:
        _option_rules.check_streaming(options.get("num_returns"), is_generator=is_generator_function(function))
        function.__oxiray_method__ = options
        return function

    return mark(args[0]) if args else mark


class Traits(NamedTuple):
    """What every handle of an actor knows of it. Travels between processes."""

    class_name: str
    #: Every method, with its options and shape.
    methods: dict[str, dict[str, Any]]
    #: How often a call is sent again after the actor's process died under it; -1 for always.
    max_task_retries: int = 0
    max_pending_calls: int = -1
    #: Whether a call may overtake earlier ones that wait for their arguments.
    unordered: bool = False
    #: The names of its concurrency groups.
    groups: tuple[str, ...] = ()
    #: The name of its class with its module.
    qualified: str = ""
    #: The language of its class; a Rust actor that was made elsewhere may have methods that are not known here.
    language: str = "python"


def _methods_of(cls: type) -> dict[str, dict[str, Any]]:
    """Every method that a handle offers, with its options and shape."""
    methods: dict[str, dict[str, Any]] = {}
    for name, function in inspect.getmembers(cls, callable):
        if name.startswith("__") and name not in ("__call__", "__len__", "__getitem__", "__enter__", "__exit__"):
            continue
        static = isinstance(inspect.getattr_static(cls, name), (staticmethod, classmethod))
        options = getattr(function, "__oxiray_method__", {})
        shape: dict[str, Any] = {"options": options, "yields": is_generator_function(function)}
        if inspect.isfunction(function) or inspect.ismethod(function):
            positions = Positions(function, skip_first=not static)
            shape.update(least=positions.least, most=positions.most, signature=positions.signature)
        methods[name] = shape
    return methods


class ActorMethod:
    """A method of an actor: call it with `.remote(...)`. It keeps the actor as a handle does."""

    __slots__ = ("_caller", "_generation", "_given", "_hold", "_leading", "_name", "_results", "_shape", "_traits")

    def __init__(self, hold: Any, traits: Traits, name: str, given: dict[str, Any] | None = None) -> None:
        self._hold = hold
        self._traits = traits
        self._name = name
        self._shape = traits.methods.get(name, {})
        self._given = given or {}
        self._results = self._chosen("num_returns", "streaming" if self._shape.get("yields") else 1)
        #: The arguments that come before those of the caller, where a method of the runtime calls the one that is meant.
        self._leading: tuple[Any, ...] = (name,) if self._results == "dynamic" else ()
        if (transport := self._chosen("tensor_transport", None)) not in (None, "object_store", "OBJECT_STORE"):
            self._leading = (name, self._checked_transport(transport))
        self._prepare()

    def __call__(self, /, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"Actor methods cannot be called directly: call `{self._name}.remote(...)` on the handle instead"
        )

    @classmethod
    def __class_getitem__(cls, _: Any) -> type[ActorMethod]:
        return cls

    def remote(self, /, *args: Any, **kwargs: Any) -> Any:
        """Calls the method in the actor's process; returns a reference to its result."""
        if self._generation != _session.generation:
            self._prepare()
        try:
            if self._leading:
                return self._caller.call((*self._leading, *args), kwargs)
            return self._caller.call(args, kwargs)
        except TypeError as error:
            callee = f"{self._traits.class_name}.{self._name}"
            raise _serialization.of_arguments(error, args, kwargs, callee) from None

    def options(self, **options: Any) -> ActorMethod:
        """The same method with other options."""
        _option_rules.check_method_call(options, self._traits.groups)
        # What yields in another language is known there.
        may_yield = bool(self._shape.get("yields")) or self._traits.language != "python"
        _option_rules.check_streaming(options.get("num_returns"), is_generator=may_yield)
        return ActorMethod(self._hold, self._traits, self._name, {**self._given, **options})

    def _remote(self, args: Any = (), kwargs: Any = None, **options: Any) -> Any:
        target = self.options(**options) if options else self
        return target.remote(*args, **(kwargs or {}))

    def bind(self, /, *args: Any, **kwargs: Any) -> Any:
        """The call as a node of a graph, made by `execute()`."""
        from oxiray import dag

        return dag.BoundMethodNode(self, args, kwargs)

    def __reduce__(self) -> Any:
        return ActorMethod, (self._hold, self._traits, self._name, self._given)

    def _chosen(self, option: str, default: Any) -> Any:
        """What the call says of an option, else the method's decorator, else `default`."""
        for given in (self._given, self._shape.get("options", {})):
            if given.get(option) is not None:
                return given[option]
        return default

    def _checked_transport(self, name: str) -> Any:
        from oxiray import _device_objects

        transport = _device_objects.transport_named(name)
        if self._results != 1:
            raise ValueError(
                f"Currently, methods with tensor_transport={transport.name} only support 1 return value. {self._name} has "
                f"num_returns={self._results!r}: return a list or a dictionary of tensors"
            )
        if _device_objects.GROUP not in self._traits.groups:
            raise ValueError(
                f'Currently, methods with .options(tensor_transport="{transport.name}") are not supported when '
                "enable_tensor_transport=False. Please set @ray.remote(enable_tensor_transport=True) on the actor class definition."
            )
        return transport

    def _prepare(self) -> None:
        _session.ensure()
        shape, traits = self._shape, self._traits
        ahead = self._chosen("_generator_backpressure_num_objects", -1)
        stream = stream_terms(self._results, ahead, self._chosen("_num_objects_per_yield", 1))
        label = self._given.get("name") or ""
        name = self._name
        if self._leading:
            # The arguments begin with the method, so that they do not fit its signature.
            label, name, shape = label or f"{traits.class_name}.{name}", GATHER if len(self._leading) == 1 else HOLD, {}
        bind = shape["signature"].bind if shape.get("signature") else None
        traced = None
        if _tracing.is_on and traits.language == "python" and self._name not in _BUILT_IN:
            traced = name, _tracing.Call(self._name, traits.class_name)
            label, name, shape = label or f"{traits.class_name}.{self._name}", _tracing.TRACE, {}
        caller = _core.Caller.of_method(
            hold=self._hold,
            class_name=traits.class_name,
            name=name,
            label=label,
            group=self._chosen("concurrency_group", ""),
            results=1 if stream or self._leading else int(self._results),
            retries=self._chosen("max_task_retries", traits.max_task_retries),
            retry_exceptions=_options.retried_as_sent(self._chosen("retry_exceptions", False), traits.language),
            stream=stream,
            unordered=traits.unordered,
            pending_limit=max(traits.max_pending_calls, 0),
            least_arguments=shape.get("least", 0),
            most_arguments=shape.get("most"),
            bind=None if traced else bind,
            common=traits.language != "python",
        )
        self._caller = caller if traced is None else _tracing.Caller(caller, traced[1], bind, *traced)
        self._generation = _session.generation


class ActorHandle:
    """An actor, as everybody but itself sees it."""

    def __init__(self, actor_id: Any, traits: Traits, hold: Any) -> None:
        self._actor_id = actor_id
        self._traits = traits
        # Counted as one handle until the last reference to it goes.
        self._hold = hold

    @classmethod
    def __class_getitem__(cls, _: Any) -> type[ActorHandle]:
        return cls

    @property
    def _ray_actor_id(self) -> Any:
        return self._actor_id

    def _get_local_state(self) -> int | None:
        """The number that Ray's protocol has for the actor's state (2 alive, 3 restarting, 4 dead), as far as this process knows
        without asking; None where it has made no call of the actor yet."""
        _session.ensure()
        phase = _core.actor_phase(self._actor_id)
        return None if phase is None else _STATES[phase]

    def __getattr__(self, name: str) -> ActorMethod:
        traits = self.__dict__.get("_traits")
        methods = traits.methods if traits is not None else {}
        is_any = traits is not None and traits.language != "python" and not methods and not name.startswith("_")
        if traits is not None and (is_any or name in methods or name in _BUILT_IN):
            # Kept on the handle, so that the next look-up is a plain one.
            bound = self.__dict__[name] = ActorMethod(self._hold, traits, name)
            return bound
        raise AttributeError(
            f"'{traits.class_name if traits is not None else 'ActorHandle'}' object has no attribute '{name}': a handle has the "
            f"methods of its actor, {', '.join(sorted(methods)) or 'none'}, through which its attributes are reached"
        )

    def __dir__(self) -> list[str]:
        return [*self._traits.methods, "__init__", *_BUILT_IN]

    def __hash__(self) -> int:
        return hash(self._actor_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and other._actor_id == self._actor_id

    def __repr__(self) -> str:
        return f"Actor({self._traits.class_name}, {self._actor_id.hex()})"

    def __reduce__(self) -> Any:
        return ActorHandle, (self._actor_id, self._traits, self._hold)

    def _as_common(self) -> tuple[bytes, bytes, bool]:
        """The handle for another language: whose it is, what is told of that, and whether it holds it."""
        from oxiray import rust

        self._hold.hand_on()
        told = _pickling.dumps(self._traits) if self._traits.language == "python" else rust.told(self._traits)
        return self._actor_id.binary(), told, self._hold.keeps


class ActorClassMetadata(NamedTuple):
    """What an actor class was made of."""

    #: The plain class.
    modified_class: type
    class_name: str


class ActorClass:
    """A class decorated with `@remote`: make an actor of it with `.remote(...)`.

    Its other attributes are those of the plain class.
    """

    def __init__(self, cls: type, options: _options.ActorOptions, code: dict[str, Any] | None = None) -> None:
        self._class = cls
        self._options = options
        self._code = {} if code is None else code
        self.__name__ = cls.__name__
        self.__qualname__ = cls.__qualname__
        self.__module__ = cls.__module__
        self.__doc__ = cls.__doc__

    def __call__(self, /, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"Actors cannot be instantiated directly: call `{self.__name__}.remote(...)` to make one in a process of its own"
        )

    def __getattr__(self, name: str) -> Any:
        cls = self.__dict__.get("_class")
        if cls is None or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        try:
            return getattr(cls, name)
        except AttributeError:
            text = f"'ActorClass({cls.__name__})' has no attribute {name!r}, and neither has its class"
            raise AttributeError(text, name=name, obj=self) from None

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._class), *object.__dir__(self)})

    @property
    def __ray_metadata__(self) -> ActorClassMetadata:
        return ActorClassMetadata(self._class, self.__name__)

    @property
    def __ray_actor_class__(self) -> type:
        """The plain class, as libraries ask for it."""
        return self._class

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        raise ActorClassInheritanceException(
            "Inheriting from actor classes is not currently supported. You can instead inherit from a non-actor base class "
            f"and make the derived class an actor class (with @ray.remote). {self.__name__} is decorated with @remote"
        )

    def options(self, **options: Any) -> ActorClass:
        """The same class with other options."""
        return ActorClass(self._class, _options.actor_options(options, in_options=True, base=self._options), self._code)

    def bind(self, /, *args: Any, **kwargs: Any) -> Any:
        """The actor as a node of a graph, made by `execute()`."""
        from oxiray import dag

        return dag.ClassNode(self, args, kwargs)

    def remote(self, /, *args: Any, **kwargs: Any) -> ActorHandle:
        """Makes an actor; its constructor gets the arguments. Returns at once, with a handle."""
        options = self._options
        if "methods" not in self._code:
            self._code["methods"] = _methods_of(self._class)
            self._code["positions"] = Positions(self._class)
            self._code["is_async"] = has_async_methods(self._class)
        methods, is_async = self._code["methods"], self._code["is_async"]
        _options.check_submittable(options, is_async=is_async)
        groups = _options.groups_of(options, [shape["options"] for shape in methods.values()])
        for name, shape in methods.items():
            _option_rules.check_group(name, shape["options"].get("concurrency_group"), tuple(groups))
        if (bind := self._code["positions"].bind) is not None:
            bind(*args, **kwargs)
        _session.ensure()
        if _actor_launch_hook is not None:
            launched = Launched(self._class.__module__, self.__name__, "__init__")
            _actor_launch_hook(launched, _gpu_memory.outward(options.running), _strategies.taken(options))
        if "body" not in self._code:
            self._code["body"] = code_of(self._class)
        traits = Traits(
            class_name=self.__name__,
            methods=methods,
            max_task_retries=options.max_task_retries,
            max_pending_calls=options.max_pending_calls,
            unordered=options.is_unordered(is_async=is_async),
            groups=tuple(groups),
            qualified=_serialization.name_of(self._class),
        )
        actor_id, hold, existing = self._create(
            args,
            kwargs,
            placement=options.placement,
            running=options.running,
            environment=_session.described_environment(options.runtime_env, self._class),
            name=options.name or "",
            namespace=options.namespace or "",
            detached=(options.lifetime or _session.default_lifetime) == "detached",
            get_if_exists=options.get_if_exists,
            max_concurrency=options.concurrency(is_async=is_async),
            groups=list(groups.items()),
            max_restarts=options.max_restarts,
            handle=_pickling.dumps(traits),
            strategy=_strategies.told(options, self.__qualname__),
            urgency=(options.priority, options.preemptible),
        )
        if existing is not None:
            traits = pickle.loads(existing)
        return ActorHandle(actor_id, traits, hold)

    def _create(self, args: tuple[Any, ...], kwargs: dict[str, Any], **described: Any) -> Any:
        try:
            body = self._code["body"]
            with _tracing.constructing(self.__name__, kwargs) as given:
                return _core.create_actor(class_name=self.__name__, body=body, args=args, kwargs=given, **described)
        except TypeError as error:
            callee = f"{_serialization.name_of(self._class)}.__init__"
            raise _serialization.of_arguments(error, args, kwargs, callee) from None
        except ActorAlreadyExistsError as error:
            name, namespace = self._options.name, self._options.namespace or _core.context()["namespace"]
            raise ActorAlreadyExistsError(
                f"The name {name} (namespace={namespace}) is already taken. Please use a different name or get the existing "
                f"actor using ray.get_actor('{name}', namespace='{namespace}'): {error}"
            ) from None

    def _remote(self, args: Any = (), kwargs: Any = None, **options: Any) -> ActorHandle:
        target = self.options(**options) if options else self
        return target.remote(*args, **(kwargs or {}))

    def __reduce__(self) -> Any:
        return ActorClass, (self._class, self._options)

    def __repr__(self) -> str:
        return f"ActorClass({self.__name__})"


def from_bytes(actor_id: Any, traits: bytes, keeps: bool = False) -> ActorHandle:
    """The handle of an actor that was found by its name, or that is this process: it does not keep the actor."""
    from oxiray import rust

    known = rust.traits(traits) if rust.is_traits(traits) else pickle.loads(traits)
    return ActorHandle(actor_id, known, _core.Hold(actor_id, keeps))


def from_common(actor_id: bytes, traits: bytes, keeps: bool) -> ActorHandle:
    """A handle that came from another language."""
    return from_bytes(_core.ActorID(actor_id), traits, keeps)


T = TypeVar("T")
#: What annotations of programs call a handle of an actor: `ActorProxy[Counter]`.
ActorProxy = Union[ActorHandle, type[T]]


def make(cls: type, given: dict[str, Any]) -> ActorClass:
    """The remote form of `cls`."""
    if issubclass(cls, ActorClass):
        raise TypeError(f"{cls.__name__} is decorated with @remote already")
    if hasattr(cls, "remote"):
        logger.warning("Creating an actor from class %s overwrites attribute remote of that class", cls.__name__)
    return ActorClass(cls, _options.actor_options(given))
