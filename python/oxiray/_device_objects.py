"""Device objects: values whose tensors stay with the process that made them, while references to them travel.

A method with a `tensor_transport` returns an `Envelope`. Its pickle has the value without its tensors, and a `Header` that
says whose they are; whoever unpickles it fetches them. The header holds a token, an object that the tensors' process owns: the
reference counts that end objects everywhere end the token, and then the tensors are let go.

Invariants:
1. Tensors are held exactly as long as their token: by an object that contains it, or a process that is reading one.
2. In the process that holds them they are the tensors themselves, not copies.
3. A value without tensors of the transport's type is an ordinary value.
4. Whatever the transport, what cannot use it fetches through the object store: a value is never out of reach for that.
"""

from __future__ import annotations

import functools
import io
import logging
import pickle
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from oxiray import _api, _core, _events, _pickling, _serialization, _worker, actor, exceptions
from oxiray._core import ObjectRef

logger = logging.getLogger("ray")

#: The concurrency group in which an actor serves others with tensors, whatever else it does.
GROUP = "_ray_system"
#: What stands for none: values are ordinary ones.
ORDINARY = (None, "object_store", "OBJECT_STORE")


class Transport(NamedTuple):
    """A way from process to process."""

    name: str
    #: The types of devices, as PyTorch names them, whose tensors it takes.
    devices: tuple[str, ...]
    #: What carries it out (`ray.experimental.TensorTransportManager`); None for those that are made here.
    manager: type | None = None
    #: The type of its tensors; None for PyTorch's.
    kind: type | None = None

    @property
    def is_collective(self) -> bool:
        """Whether both sides take part, as members of a group of `ray.util.collective`."""
        return self.name in ("GLOO", "NCCL")

    def kind_of_tensors(self) -> type:
        """The type of the tensors that stay behind."""
        # Where nobody has imported PyTorch, no value has tensors of it.
        torch = sys.modules.get("torch")
        return self.kind or (torch.Tensor if torch is not None else _NoTensor)


class _NoTensor:
    """What no value has."""


#: Those that are there, by name; programs add theirs.
transports: dict[str, Transport] = {
    one.name: one
    for one in (
        Transport("AUTO", ()),
        Transport("GLOO", ("cpu",)),
        Transport("NCCL", ("cuda",)),
        Transport("CUDA_IPC", ("cuda",)),
        Transport("NIXL", ("cuda", "cpu")),
    )
}
_managers: dict[str, Any] = {}


def transport_named(name: str) -> Transport:
    """The transport of this name, in any case. Raises `ValueError` where there is none."""
    found = transports.get(name.upper())
    if found is None:
        raise ValueError(
            f"Invalid tensor transport: {name.upper()}. There are {', '.join(transports)}, and those of "
            "ray.experimental.register_tensor_transport()"
        )
    if found.name == "NIXL":
        _tell_once(
            "tensor_transport='nixl' does as 'auto' does: NIXL is not in this version, so that tensors stay on their device, and are read "
            "through CUDA IPC on the same GPU and through the object store elsewhere"
        )
    return found


_told: set[str] = set()


def _tell_once(text: str) -> None:
    if text not in _told:
        _told.add(text)
        logger.warning("%s", text)


def _manager_of(transport: Transport) -> Any:
    if transport.manager is None:
        return None
    if transport.name not in _managers:
        # What travels with a value is as good as what was registered here.
        transports.setdefault(transport.name, transport)
        _managers[transport.name] = transport.manager()
    return _managers[transport.name]


@dataclass
class _Held:
    """Tensors that stay here."""

    tensors: list[Any]
    transport: Transport
    #: What readers are told of them.
    facts: Any
    #: What has to be there while they are read: the event after which the GPU has written them.
    event: Any = None


_held: dict[str, _Held] = {}
_freed = threading.Condition()


def _let_go(identity: str) -> None:
    with _freed:
        held = _held.pop(identity, None)
        _freed.notify_all()
    if held is None:
        return
    manager = _manager_of(held.transport)
    if manager is not None:
        manager.garbage_collect(identity, held.facts, held.tensors)
    elif held.event is not None:
        _close_cuda_handles(held.facts)


def wait_until_freed(tensor: Any, timeout: float | None) -> None:
    """Waits until no device object has this tensor. Raises `TimeoutError`."""
    end = None if timeout is None else time.monotonic() + timeout
    with _freed:
        while any(one is tensor for held in _held.values() for one in held.tensors):
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(
                    f"Tensor {type(tensor).__name__} of shape {tuple(tensor.shape)} not freed from RDT object store after {timeout}s. It is "
                    "held as long as a reference to an object with it is: `oxiray memory` lists who has which"
                )
            _freed.wait(left)


class Envelope:
    """A value whose tensors stay here, on its way to whoever asked for it."""

    def __init__(self, value: Any, transport: Transport) -> None:
        self._value = value
        self._transport = transport
        self._header: Header | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        taken = _Taken(self._transport.kind_of_tensors())
        taken.dump(self._value)
        # The token must not end before whoever serializes this has counted it among what the value contains.
        self._header = header = _hold(taken.tensors, self._transport) if taken.tensors else None
        return _opened, (header, taken.file.getvalue(), taken.buffers)


def put_aside(value: Any, name: str) -> Any:
    """What `put(value, _tensor_transport=name)` stores. Raises `ValueError` where tensors cannot stay here, or go by such a way."""
    if name in ORDINARY:
        return value
    transport = transport_named(name)
    if transport.is_collective or (transport.manager is not None and not transport.manager.is_one_sided()):  # type: ignore[attr-defined]
        raise ValueError(
            f"ray.put() is not supported for two-sided RDT transport {transport.name!r}. Return the value from a method with "
            f"@ray.method(tensor_transport={transport.name!r}) instead."
        )
    if _core.context()["actor_id"] is None:
        _tell_once(
            "put(_tensor_transport=) has no effect outside of actors, since nothing else can hand out its tensors while it does something "
            "else: they are copied into the object store"
        )
        return value
    if GROUP not in pickle.loads(_worker.own_traits).groups:
        raise ValueError(
            f"ray.put(_tensor_transport={transport.name!r}) needs an actor with @ray.remote(enable_tensor_transport=True), which hands out "
            "its tensors to others while it does something else"
        )
    return Envelope(value, transport)


class _Taken(_pickling.Pickler):
    """Pickles a value without its tensors, each of which is taken once."""

    def __init__(self, kind: type) -> None:
        self.file = io.BytesIO()
        self.buffers: list[pickle.PickleBuffer] = []
        self.tensors: list[Any] = []
        self._kind = kind
        self._places: dict[int, int] = {}
        super().__init__(self.file, protocol=5, buffer_callback=self.buffers.append)

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, self._kind):
            return None
        place = self._places.setdefault(id(value), len(self.tensors))
        if place == len(self.tensors):
            self.tensors.append(value)
        return place


class _Filled(pickle.Unpickler):
    """Reads a value back, with tensors in their places."""

    def __init__(self, text: bytes, buffers: list[Any], tensors: list[Any]) -> None:
        super().__init__(io.BytesIO(text), buffers=buffers)
        self._tensors = tensors

    def persistent_load(self, place: int) -> Any:
        return self._tensors[place]


@dataclass(frozen=True)
class Header:
    """Whose the tensors of a value are."""

    identity: str
    #: What keeps them.
    token: ObjectRef[str]
    transport: Transport
    #: The actor that holds them.
    holder: actor.ActorHandle
    facts: Any


def _hold(tensors: list[Any], transport: Transport) -> Header:
    identity, manager = uuid.uuid4().hex, _manager_of(transport)
    devices = sorted({_device_of(tensor) for tensor in tensors})
    if transport.devices and not set(devices) <= set(transport.devices):
        raise ValueError(
            f"Tensor transport backend {transport.name} does not support tensor transfer on device {devices[0]}. It takes tensors on "
            f"{', '.join(transport.devices)}, and 'auto' any"
        )
    facts, event = None, None
    if manager is not None:
        facts = manager.extract_tensor_transport_metadata(identity, tensors)
    elif devices == ["cuda"] and not transport.is_collective:
        facts, event = _cuda_handles(tensors)
    token = _core.put_stored(identity)
    with _freed:
        _held[identity] = _Held(tensors, transport, facts, event)
    kept = ", ".join(sorted({str(getattr(tensor, "device", "")) or transport.name.lower() for tensor in tensors}))
    size = sum(int(getattr(tensor, "nbytes", 0)) for tensor in tensors)
    _events.when_ended(token, lambda _: _let_go(identity), kept=(kept, size))
    return Header(identity, token, transport, _own_handle(), facts)


def _device_of(tensor: Any) -> str:
    device = getattr(tensor, "device", None)
    return str(getattr(device, "type", "") or getattr(device, "platform", ""))


def _own_handle() -> actor.ActorHandle:
    from oxiray.runtime_context import get_runtime_context

    return get_runtime_context().current_actor


def _opened(header: Header | None, text: bytes, buffers: list[Any]) -> Any:
    """The value of an envelope."""
    return _Filled(text, buffers, [] if header is None else _fetched(header)).load()


# --- What a reader wants

class _Wanted(threading.local):
    """Where the tensors of what this thread reads next are to be."""

    buffers: list[Any] | None = None
    device: str | None = None
    has_read = False
    #: Whether they are to come through the object store.
    through_the_store = False


_wanted = _Wanted()


@contextmanager
def _wanting(reference: ObjectRef[Any]) -> Iterator[None]:
    _wanted.buffers, _wanted.device = _api.targets.pop(reference)
    _wanted.has_read = False
    try:
        yield
    finally:
        _wanted.buffers = _wanted.device = None
    if not _wanted.has_read:
        raise ValueError(f"Ref {reference} is not an RDT object. Its value has no tensors that stayed with the process that made them")


def get_as_wanted(references: Any, timeout: float | None, *, through_the_store: bool) -> Any:
    """What `get` returns, where tensors of some references were asked to be in buffers or on a device, or to come another way."""
    _wanted.through_the_store = through_the_store
    try:
        return _got_with_targets(references, timeout)
    finally:
        _wanted.through_the_store = False


def _got_with_targets(references: Any, timeout: float | None) -> Any:
    if isinstance(references, ObjectRef) and references in _api.targets:
        with _wanting(references):
            return _api._got(references, timeout)
    if not isinstance(references, list) or not any(isinstance(one, ObjectRef) and one in _api.targets for one in references):
        return _api._got(references, timeout)
    end = None if timeout is None else time.monotonic() + timeout
    left = lambda: None if end is None else max(0.0, end - time.monotonic())  # noqa: E731
    return [_got_with_targets(reference, left()) for reference in references]


def _placed(tensors: list[Any]) -> list[Any]:
    """The tensors, in the buffers or on the device that are wanted."""
    _wanted.has_read = True
    if _wanted.buffers is not None:
        _check_buffers(_wanted.buffers, tensors)
        for buffer, tensor in zip(_wanted.buffers, tensors, strict=True):
            buffer.copy_(tensor)
        return list(_wanted.buffers)
    return tensors if _wanted.device is None else [tensor.to(_wanted.device) for tensor in tensors]


def _check_buffers(buffers: list[Any], tensors: list[Any]) -> None:
    if len(buffers) != len(tensors):
        raise ValueError(
            f"Length of tensor_buffers ({len(buffers)}) does not match length from object metadata ({len(tensors)})."
        )
    for place, (buffer, tensor) in enumerate(zip(buffers, tensors, strict=True)):
        for what, given, wanted in (("Shape", buffer.shape, tensor.shape), ("Dtype", buffer.dtype, tensor.dtype)):
            if given != wanted:
                raise ValueError(
                    f"{what} of tensor_buffer at index {place} ({given}) does not match {what.lower()} from object metadata ({wanted})."
                )


# --- The ways

def _fetched(header: Header) -> list[Any]:
    held = _held.get(header.identity)
    if held is not None:
        return _placed(held.tensors)
    found = None if _wanted.through_the_store else _by_transport(header)
    return _placed(_through_the_store(header) if found is None else found)


def _by_transport(header: Header) -> list[Any] | None:
    """The tensors by their transport; None where this process cannot use that."""
    manager = _manager_of(header.transport)
    if manager is not None:
        return _by_manager(header, manager)
    if header.transport.is_collective:
        group = group_with(header.transport.name, header.holder)
        return None if group is None else _by_group(header, group)
    return None if header.facts is None else _from_cuda_handles(header)


def _ask(header: Header, function: Callable[..., Any], *args: Any) -> ObjectRef[Any]:
    """Has the holder run a function beside whatever it does."""
    ask = header.holder.__ray_call__.options(concurrency_group=GROUP, name=f"{header.holder._traits.class_name}.{function.__name__[1:]}")
    reference: ObjectRef[Any] = ask.remote(function, header.identity, *args)
    return reference


def _tensors_of(identity: str) -> list[Any]:
    held = _held.get(identity)
    if held is None:
        raise exceptions.RayDirectTransportError(
            f"the tensors of this object were held by an earlier process of actor {_own_handle()}, and ended with it: make the object again"
        )
    return held.tensors


def _give(_: Any, identity: str) -> list[Any]:
    """What goes through the store: the bytes of each tensor, with their shape and type."""
    import torch

    described = []
    for tensor in _tensors_of(identity):
        if not isinstance(tensor, torch.Tensor):
            described.append(tensor)
            continue
        flat = tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy()
        described.append(_Bytes(tuple(tensor.shape), tensor.dtype, tensor.device.type, flat))
    return described


#: Smaller tensors are copied out of the store.
_COPIED_BELOW = 1 << 20


@functools.cache
def _private_limit() -> int:
    """How much of the node's store may stay pinned for tensors that this process reads: a quarter of it."""
    own = _core.context()["node_id"]
    stores = (node["resources"].get("object_store_memory", 0.0) for node in _core.cluster()["nodes"] if node["node_id"] == own)
    return int(next(stores, 0.0)) // 4


class _Bytes(NamedTuple):
    shape: tuple[int, ...]
    dtype: Any
    device: str
    flat: Any

    def tensor(self) -> Any:
        """The tensor, which nobody else has, on such a device where there is one."""
        import torch

        private = _serialization.private_view(self.flat, _private_limit()) if self.device == "cpu" and self.flat.nbytes >= _COPIED_BELOW else None
        if private is not None:
            return torch.frombuffer(private, dtype=self.dtype).reshape(self.shape)
        device = self.device if self.device == "cpu" or getattr(torch, self.device, None) and getattr(torch, self.device).is_available() else "cpu"
        made = torch.empty(self.shape, dtype=self.dtype, device=device)
        # An array of the store cannot be written to, and is copied right here.
        source = torch.frombuffer(memoryview(self.flat), dtype=torch.uint8) if self.flat.size else None
        if source is not None:
            made.reshape(-1).view(torch.uint8).copy_(source)
        return made


def _through_the_store(header: Header) -> list[Any]:
    import warnings

    _core.keep_descriptors()
    given = _core.get_one(_ask(header, _give))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given buffer is not writable")
        return [one.tensor() if isinstance(one, _Bytes) else one for one in given]


def _cuda_handles(tensors: list[Any]) -> tuple[Any, Any]:
    """What another process on the same GPU opens tensors by, and the event that is part of it; none where they cannot be opened."""
    import torch
    from torch.multiprocessing.reductions import reduce_tensor

    if len({tensor.device.index for tensor in tensors}) > 1:
        return None, None
    event = torch.cuda.Event(interprocess=True)
    torch.cuda.current_stream(tensors[0].device).record_event(event)
    uuid_of_gpu = str(torch.cuda.get_device_properties(tensors[0].device).uuid)
    try:
        return (uuid_of_gpu, event.ipc_handle(), [reduce_tensor(tensor.detach()) for tensor in tensors]), event
    except RuntimeError as error:
        # Memory of some allocators cannot be mapped by others, as that of "expandable_segments" on older drivers.
        _tell_once(f"tensors on this GPU cannot be mapped by other processes, which read them through the object store: {error}")
        return None, None


#: Where the number of the GPU, and the counter of those that map the memory, stand among what `rebuild_cuda_tensor` takes.
_DEVICE_AT, _COUNTER_AT = 6, slice(11, 13)


def _from_cuda_handles(header: Header) -> list[Any] | None:
    """The tensors, where this process has their GPU."""
    import torch

    uuid_of_gpu, event, handles = header.facts
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    here = [index for index in range(count) if str(torch.cuda.get_device_properties(index).uuid) == uuid_of_gpu]
    if not here:
        return None
    device = torch.device("cuda", here[0])
    torch.cuda.current_stream(device).wait_event(torch.cuda.Event.from_ipc_handle(device, event))
    opened = []
    for rebuild, arguments in handles:
        tensor = rebuild(*arguments[:_DEVICE_AT], here[0], *arguments[_DEVICE_AT + 1 :])
        # It is the holder's memory, which stays as long as the tensor does.
        tensor._oxiray_token = header.token
        opened.append(tensor)
    return opened


def _close_cuda_handles(facts: Any) -> None:
    """Counts a reader less of each tensor, which PyTorch expects from the first one; without, what nobody read is never freed."""
    import torch

    for _, arguments in facts[2]:
        counter = arguments[_COUNTER_AT]
        if counter[0] is not None:
            torch.UntypedStorage._release_ipc_counter_cuda(*counter)


# --- Groups of ray.util.collective

class Group(NamedTuple):
    """A group that this process is a member of."""

    name: str
    backend: str
    #: Its members, by rank.
    actors: tuple[Any, ...]


groups: dict[str, Group] = {}


def group_with(backend: str, other: actor.ActorHandle) -> Group | None:
    """The group of this backend that this process and `other` are members of."""
    return next((group for group in groups.values() if group.backend == backend and other._actor_id in group.actors), None)


def _send(_: Any, identity: str, group: str, rank: int) -> None:
    from oxiray.util import collective

    for tensor in _tensors_of(identity):
        collective.send(tensor.detach().contiguous(), rank, group)


def _shapes(_: Any, identity: str) -> list[tuple[Any, Any, Any]]:
    return [(tensor.shape, tensor.dtype, tensor.device.type) for tensor in _tensors_of(identity)]


def _by_group(header: Header, group: Group) -> list[Any]:
    import torch

    from oxiray.util import collective

    own = _core.ActorID(bytes.fromhex(str(_core.context()["actor_id"])))
    shapes = _core.get_one(_ask(header, _shapes))
    sent = _ask(header, _send, group.name, group.actors.index(own))
    tensors = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype, device in shapes]
    for tensor in tensors:
        collective.recv(tensor, group.actors.index(header.holder._actor_id), group.name)
    _core.get_one(sent)
    return tensors


# --- Transports of programs

def _send_by_manager(_: Any, identity: str, transport: Transport, facts: Any, between: Any) -> None:
    _manager_of(transport).send_multiple_tensors(_tensors_of(identity), facts, between)


def _abort_by_manager(_: Any, identity: str, transport: Transport, between: Any) -> None:
    _manager_of(transport).abort_transport(identity, between)


def _by_manager(header: Header, manager: Any) -> list[Any]:
    transport, facts = header.transport, header.facts
    own = _own_handle() if _core.context()["actor_id"] else None
    between = manager.get_communicator_metadata(header.holder, own, transport.name)
    sent = None if manager.is_one_sided() else _ask(header, _send_by_manager, transport, facts, between)
    try:
        received = manager.recv_multiple_tensors(header.identity, facts, between, _wanted.buffers)
    except Exception as error:
        if manager.can_abort_transport():
            manager.abort_transport(header.identity, between)
            _ask(header, _abort_by_manager, transport, between)
        raise exceptions.RayDirectTransportError(
            f"tensor transport {transport.name} could not read from {header.holder}: {type(error).__name__}: {error}"
        ) from error
    if sent is not None:
        _core.get_one(sent)
    return list(received)


# --- Calls

def held_call(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method as an actor calls it whose result stays: its first argument is the transport."""

    def call(transport: Transport, *args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        if hasattr(result, "__await__"):
            return _later(result, transport)
        return Envelope(result, transport)

    return call


async def _later(result: Any, transport: Transport) -> Envelope:
    return Envelope(await result, transport)
