"""Device objects: values whose tensors stay with the actor that made them, while references to them travel.

`@ray.method(tensor_transport="auto")` leaves the tensors of a result where they are, as does
`ray.put(value, _tensor_transport="auto")` in an actor with `enable_tensor_transport=True`. Whoever gets the value, or takes it as an
argument, fetches them: the actor itself has the same tensors, a process on the same GPU maps its memory (CUDA IPC), members of a
group of `ray.experimental.collective` send them to each other, and everybody else reads them through the object store. The names
are those of Ray 2.60, whose interface is alpha.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oxiray import _api, _device_objects, _missing

if TYPE_CHECKING:
    from oxiray._core import ObjectRef
    from oxiray.actor import ActorHandle


@dataclass
class CommunicatorMetadata:
    """What both sides of a transfer must know of each other."""


@dataclass
class TensorTransportMetadata:
    """What a reader is told of tensors: the shape and type of each, and the type of the device that they are on."""

    tensor_meta: list[tuple[Any, Any]]
    tensor_device: str | None = None


class TensorTransportManager(ABC):
    """A way of a program's own for tensors, for `register_tensor_transport`. Each process makes one when it first needs it."""

    @abstractmethod
    def tensor_transport_backend(self) -> str:
        """Its name."""

    @staticmethod
    @abstractmethod
    def is_one_sided() -> bool:
        """Whether the reader alone takes part in a transfer; otherwise `send_multiple_tensors` runs in the actor meanwhile."""

    @staticmethod
    @abstractmethod
    def can_abort_transport() -> bool:
        """Whether a transfer that failed on one side can be given up on the other, by `abort_transport`."""

    @abstractmethod
    def actor_has_tensor_transport(self, actor: ActorHandle) -> bool:
        """Whether an actor can use it."""

    @abstractmethod
    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        """What readers are told of these tensors; called in the actor that has them, before anybody asks for them."""

    @abstractmethod
    def get_communicator_metadata(
        self, src_actor: ActorHandle, dst_actor: ActorHandle | None, backend: str | None = None
    ) -> CommunicatorMetadata:
        """What both sides are told of each other; called by the reader, which is no actor where `dst_actor` is None."""

    @abstractmethod
    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        """Reads the tensors, into `target_buffers` where there are any."""

    @abstractmethod
    def send_multiple_tensors(
        self,
        tensors: list[Any],
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
    ) -> None:
        """Sends the tensors to the reader; called in the actor that has them, where the transport is not one-sided."""

    @abstractmethod
    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        """Lets go of what was made for these tensors; called in the actor that has them when no reference is left."""

    @abstractmethod
    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """Gives a transfer up that failed; called on both sides."""


def register_tensor_transport(
    transport_name: str, devices: list[str], transport_manager_class: type[TensorTransportManager], data_type: type
) -> None:
    """Adds a transport: its name in any case, the types of devices that it takes tensors from, and the type of its tensors.

    Raises `ValueError` where the name is taken, or the class is no `TensorTransportManager`.
    """
    name = transport_name.upper()
    if name in _device_objects.transports:
        raise ValueError(f"Transport {name} already registered. There are {', '.join(_device_objects.transports)}")
    if not issubclass(transport_manager_class, TensorTransportManager):
        raise ValueError(
            f"transport_manager_class {transport_manager_class.__name__} must be a subclass of TensorTransportManager."
        )
    _device_objects.transports[name] = _device_objects.Transport(name, tuple(devices), transport_manager_class, data_type)


def wait_tensor_freed(tensor: Any, timeout: float | None = None) -> None:
    """Waits, in the actor that has it, until no object refers to the tensor any more, so that it may be written to.

    Raises `TimeoutError` after `timeout` seconds.
    """
    _device_objects.wait_until_freed(tensor, timeout)


def set_target_for_ref(ref: ObjectRef[Any], target: list[Any]) -> None:
    """Has the next `ray.get` of the reference here write its tensors into these, in the order in which they are in the value.

    That `get` raises `ValueError` where their number, a shape or a type differs, or where the value has no tensors that stayed
    with their process.
    """
    _api.targets[ref] = (list(target), None)


def set_target_device_for_ref(ref: ObjectRef[Any], target_device: str) -> None:
    """Has the next `ray.get` of the reference here return its tensors on this device, such as "cpu" or "cuda:0".

    That `get` raises `ValueError` where the value has no tensors that stayed with their process.
    """
    _api.targets[ref] = (None, target_device)


__all__ = [
    "CommunicatorMetadata",
    "TensorTransportManager",
    "TensorTransportMetadata",
    "register_tensor_transport",
    "set_target_device_for_ref",
    "set_target_for_ref",
    "wait_tensor_freed",
]

__getattr__ = _missing.attributes(__name__)
