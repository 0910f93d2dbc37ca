"""Calls that are written down first and made later: `f.bind(...)` and `node.execute(...)`.

A node is one call, or one thing that calls work on. Executing a node makes every call that it depends on, each once,
with ordinary tasks and actors; the references of what was called before stand among the arguments of what comes after.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from oxiray import _missing


class DAGNode:
    """One step. `execute(...)` makes it, and whatever it depends on."""

    def __init__(
        self,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
        other_args_to_resolve: dict[str, Any] | None = None,
    ) -> None:
        self._bound_args = tuple(args)
        self._bound_kwargs = dict(kwargs or {})
        # What the nodes of Ray's libraries are made with; those of this module have neither.
        self._bound_options = dict(options or {})
        self._bound_other_args_to_resolve = dict(other_args_to_resolve or {})
        self._stable_uuid = uuid.uuid4().hex

    def get_args(self) -> tuple[Any, ...]:
        """The positional arguments that were bound."""
        return self._bound_args

    def get_kwargs(self) -> dict[str, Any]:
        """The arguments that were bound by name."""
        return dict(self._bound_kwargs)

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        """Makes the call now; `InputNode` stands for the arguments. Returns what `.remote(...)` returns."""
        return _Execution(args, kwargs).result_of(self)

    def experimental_compile(self, *_: Any, **__: Any) -> Any:
        """Raises `NotImplementedError`."""
        raise NotImplementedError(
            "compiled graphs are not in Oxiray, and Ray plans to remove them: call execute(), or the actors' methods "
            "themselves, whose calls go from process to process as they do in a compiled graph"
        )

    def _call(self, execution: _Execution, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError


class FunctionNode(DAGNode):
    """A call of a remote function."""

    def __init__(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        super().__init__(args, kwargs)
        self._function = function

    def _call(self, execution: _Execution, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._function.remote(*args, **kwargs)


class ClassNode(DAGNode):
    """An actor to be made, one for each execution. `node.method.bind(...)` is a call of it."""

    def __init__(self, actor_class: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        super().__init__(args, kwargs)
        self._actor_class = actor_class
        #: The calls in the order in which they were bound, which is the one they are made in.
        self._calls: list[ClassMethodNode] = []

    def __getattr__(self, name: str) -> UnboundClassMethodNode:
        if name.startswith("_"):
            raise AttributeError(name)
        cls = self.__dict__["_actor_class"]._class
        if not hasattr(cls, name):
            raise AttributeError(f"class {cls.__name__} has no method {name!r} to bind", name=name, obj=self)
        return UnboundClassMethodNode(self, name, {})

    def _call(self, execution: _Execution, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._actor_class.remote(*args, **kwargs)


class UnboundClassMethodNode:
    """A method of an actor to be made: `bind(...)` makes a node of it."""

    def __init__(self, actor: ClassNode, name: str, options: dict[str, Any]) -> None:
        self._actor = actor
        self._name = name
        self._options = options

    def options(self, **options: Any) -> UnboundClassMethodNode:
        """The same method with other options."""
        return UnboundClassMethodNode(self._actor, self._name, {**self._options, **options})

    def bind(self, *args: Any, **kwargs: Any) -> ClassMethodNode:
        """A call of it, after those that were bound before."""
        node = ClassMethodNode(self._actor, self._name, self._options, args, kwargs)
        self._actor._calls.append(node)
        return node


class ClassMethodNode(DAGNode):
    """A call of an actor's method."""

    def __init__(
        self, actor: Any, name: str, options: dict[str, Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        super().__init__(args, kwargs)
        self._actor = actor
        self._name = name
        self._options = options

    def _call(self, execution: _Execution, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        handle = execution.result_of(self._actor)
        method = getattr(handle, self._name)
        return (method.options(**self._options) if self._options else method).remote(*args, **kwargs)


class BoundMethodNode(ClassMethodNode):
    """A call of a method of an actor that lives already."""

    def __init__(self, method: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        super().__init__(None, "", {}, args, kwargs)
        self._method = method

    def _call(self, execution: _Execution, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._method.remote(*args, **kwargs)


class InputNode(DAGNode):
    """What `execute(...)` is given. `node[0]`, `node["key"]` and `node.name` are parts of it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args or kwargs:
            raise ValueError(f"InputNode() stands for what execute() will be given, and takes nothing itself: {args or kwargs}")
        super().__init__()

    def __enter__(self) -> InputNode:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getitem__(self, key: Any) -> InputAttributeNode:
        return InputAttributeNode(self, key, is_item=True)

    def __getattr__(self, name: str) -> InputAttributeNode:
        if name.startswith("_"):
            raise AttributeError(name)
        return InputAttributeNode(self, name, is_item=False)

    def _call(self, execution: _Execution, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(execution.args) == 1 and not execution.kwargs:
            return execution.args[0]
        raise ValueError(
            f"an InputNode stands for one argument, and execute() was given {len(execution.args)} and "
            f"{len(execution.kwargs)} by name: bind the parts that are meant, as node[0] and node.name"
        )


class InputAttributeNode(DAGNode):
    """A part of what `execute(...)` is given: of its one argument, or one of several."""

    def __init__(self, node: InputNode, key: Any, *, is_item: bool) -> None:
        super().__init__()
        self._node = node
        self._key = key
        self._is_item = is_item

    def _call(self, execution: _Execution, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(execution.args) == 1 and not execution.kwargs:
            (whole,) = execution.args
            return whole[self._key] if self._is_item else getattr(whole, self._key)
        given: Any = execution.args if isinstance(self._key, int) else execution.kwargs
        try:
            return given[self._key]
        except LookupError:
            raise ValueError(f"the graph asks for the input {self._key!r}, which execute() was not given") from None


class MultiOutputNode(DAGNode):
    """Several nodes that are executed together: `execute(...)` returns the list of their results."""

    def __init__(self, args: Sequence[DAGNode], other_args_to_resolve: dict[str, Any] | None = None) -> None:
        if not isinstance(args, (list, tuple)) or not all(isinstance(node, DAGNode) for node in args):
            raise ValueError(f"MultiOutputNode() takes a list of nodes, and was given {args!r}")
        super().__init__(args)

    def _call(self, execution: _Execution, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return list(args)


class _Execution:
    """One execution of a graph: each node's result, once it was made."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs
        self._results: dict[int, Any] = {}

    def result_of(self, node: DAGNode) -> Any:
        if isinstance(node, ClassMethodNode) and isinstance(node._actor, ClassNode):
            # An actor runs its calls in the order in which they were bound, those that nothing else asks for too.
            for earlier in node._actor._calls:
                if earlier is node:
                    break
                self._made(earlier)
        return self._made(node)

    def _made(self, node: DAGNode) -> Any:
        if id(node) not in self._results:
            args = tuple(self._filled(value) for value in node._bound_args)
            kwargs = {name: self._filled(value) for name, value in node._bound_kwargs.items()}
            self._results[id(node)] = node._call(self, args, kwargs)
        return self._results[id(node)]

    def _filled(self, value: Any) -> Any:
        """`value` with results in the place of nodes, which may stand in lists, tuples and dictionaries."""
        if isinstance(value, DAGNode):
            return self.result_of(value)
        if type(value) in (list, tuple):
            return type(value)(self._filled(part) for part in value)
        if type(value) is dict:
            return {key: self._filled(part) for key, part in value.items()}
        return value


__all__ = [
    "ClassMethodNode",
    "ClassNode",
    "DAGNode",
    "FunctionNode",
    "InputAttributeNode",
    "InputNode",
    "MultiOutputNode",
]

__getattr__ = _missing.attributes(__name__)
