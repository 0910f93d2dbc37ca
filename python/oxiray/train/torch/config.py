"""The process group of a run's workers.

Invariant: the port that the ranks meet at is held by rank 0 from before anybody is told of it until its store listens
on that very socket.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from oxiray.train._errors import WorkerGroupStartupError
from oxiray.train.backend import Backend, BackendConfig
from oxiray.util._node import get_node_ip_address

#: The request for an interface's address, of Linux.
_SIOCGIFADDR = 0x8915
_INIT_METHODS = ("env", "tcp")
#: What `torchrun` tells each process that it starts.
_OF_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
#: What the first DistributedDataParallel of a process imports, which takes as long as PyTorch itself.
_IMPORTED_LATE = ("torch._dynamo",)


@dataclass
class TorchConfig(BackendConfig):
    """Which backend carries tensors between workers, and how long a collective call may take.

    `backend` is NCCL with GPUs and Gloo without, unless it is given. The ranks meet at a port that is held for them,
    so `env` and `tcp` differ in nothing but name.
    """

    backend: str | None = None
    init_method: str = "env"
    timeout_s: int = 1800

    __module__ = "oxiray.train.torch"

    def __post_init__(self) -> None:
        if self.init_method not in _INIT_METHODS:
            raise ValueError(f"TorchConfig(init_method={self.init_method!r}) must be one of {', '.join(_INIT_METHODS)}")
        if isinstance(self.timeout_s, bool) or not isinstance(self.timeout_s, (int, float)) or self.timeout_s <= 0:
            raise ValueError(f"TorchConfig(timeout_s={self.timeout_s!r}) must be seconds above 0")
        if self.backend is not None and not isinstance(self.backend, str):
            raise ValueError(f"TorchConfig(backend={self.backend!r}) must be a name, such as 'gloo' or 'nccl'")

    @property
    def backend_cls(self) -> type[Backend]:
        """What sets it up."""
        return TorchBackend

    @property
    def train_func_context(self) -> Any:
        """Makes the worker's own device the current one."""
        return on_own_device

    @property
    def preload(self) -> tuple[str, ...]:
        """Workers are forked from a process that has PyTorch, and what it imports when a model is wrapped."""
        return ("torch", __name__, *(name for name in _IMPORTED_LATE if _is_there(name)))

    @contextlib.contextmanager
    def in_this_process(self) -> Iterator[Any]:
        """Where this process stands with `num_workers=0`: among those that `torchrun` started with it, or alone.

        With `torchrun` they are a process group, of NCCL where there are GPUs.
        """
        if any(name not in os.environ for name in _OF_TORCHRUN):
            with super().in_this_process() as place:
                yield place
            return
        import torch

        from oxiray.train._inside import Place

        rank, size, local_rank, local_size = (int(os.environ[name]) for name in _OF_TORCHRUN[:4])
        has_gpus = torch.cuda.is_available()
        if has_gpus:
            torch.cuda.set_device(local_rank)
        torch.distributed.init_process_group("nccl" if has_gpus else "gloo", timeout=timedelta(seconds=self.timeout_s))
        try:
            yield Place(rank, size, local_rank, local_size, rank // local_size)
        finally:
            torch.distributed.destroy_process_group()

    def to_dict(self) -> dict[str, Any]:
        """The configuration as plain values."""
        return {"backend": self.backend, "init_method": self.init_method, "timeout_s": self.timeout_s}


class TorchBackend(Backend):
    """Makes and ends the process group."""

    share_cuda_visible_devices = True
    needs_port = True

    def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
        """Joins all ranks to one process group. Raises `WorkerGroupStartupError` where PyTorch cannot do that."""
        assert isinstance(backend_config, TorchConfig)
        host, port = worker_group.address
        world_size = len(worker_group)
        worker_group.execute(
            _join, backend_config.backend or "gloo", backend_config.timeout_s, host, port, world_size
        )

    def on_shutdown(self, worker_group: Any, backend_config: BackendConfig) -> None:
        """Ends the process group. Of a group that failed it ends with the workers: they may wait in it for the rank that failed."""
        if not worker_group.has_failed:
            worker_group.execute(_leave)


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _join(backend: str, timeout_s: float, host: str, port: int, world_size: int) -> None:
    import torch.distributed as distributed

    from oxiray.train import _inside

    place = _inside.current("process group").place
    ranks = {
        "MASTER_ADDR": host, "MASTER_PORT": port, "RANK": place.world_rank, "WORLD_SIZE": world_size,
        "LOCAL_RANK": place.local_rank, "LOCAL_WORLD_SIZE": place.local_world_size, "NODE_RANK": place.node_rank,
    }  # fmt: skip
    os.environ.update({name: str(value) for name, value in ranks.items()})
    if not distributed.is_available():
        raise WorkerGroupStartupError("this PyTorch was built without torch.distributed: install one with it")
    from oxiray.train.torch._devices import get_device

    os.environ["ACCELERATE_TORCH_DEVICE"] = str(get_device())
    if backend == "nccl" and "TORCH_NCCL_BLOCKING_WAIT" not in os.environ:
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    if place.local_world_size < world_size and "GLOO_SOCKET_IFNAME" not in os.environ:
        # Gloo takes the address that the machine's own name has, which often is the local one.
        interface = _interface_of(get_node_ip_address())
        if interface is not None:
            os.environ["GLOO_SOCKET_IFNAME"] = interface
    timeout = timedelta(seconds=timeout_s)
    descriptor = _inside.held_port()
    store = distributed.TCPStore(
        host, port, world_size, is_master=place.world_rank == 0, timeout=timeout, wait_for_workers=False,
        master_listen_fd=descriptor,
    )  # fmt: skip
    distributed.init_process_group(backend, store=store, rank=place.world_rank, world_size=world_size, timeout=timeout)


def _interface_of(address: str) -> str | None:
    """The network interface that has an IPv4 address; None where none has it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(asking, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # it has no such address
            if socket.inet_ntoa(found[20:24]) == address:
                return name
    return None


def _leave() -> None:
    torch = sys.modules["torch"]
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@contextlib.contextmanager
def on_own_device() -> Iterator[None]:
    """Makes the worker's device the current one where it is a GPU."""
    import torch

    from oxiray.train.torch._devices import get_device

    device = get_device()
    if device.type == "cuda" and torch.cuda.is_available():
        torch.cuda.set_device(device)
    yield
