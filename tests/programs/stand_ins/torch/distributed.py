"""The part of `torch.distributed` that makes and ends a process group."""

from __future__ import annotations

import socket
from typing import Any

_group: tuple[str, TCPStore] | None = None


class TCPStore:
    """Where the ranks meet; rank 0 listens on the socket that it was given."""

    def __init__(self, host: str, port: int, world_size: int, *, is_master: bool, master_listen_fd: int | None, **_: Any) -> None:
        self._socket = socket.socket(fileno=master_listen_fd) if is_master else socket.create_connection((host, port), 10)
        assert not is_master or self._socket.getsockname() == (host, port)


def is_available() -> bool:
    """It always is."""
    return True


def is_initialized() -> bool:
    """Whether there is a process group."""
    return _group is not None


def init_process_group(backend: str, *, store: TCPStore, rank: int, world_size: int, **_: Any) -> None:
    """Prints what was asked for."""
    global _group
    assert isinstance(store, TCPStore)
    _group = (backend, store)
    print(f"init_process_group({backend}, rank {rank} of {world_size})")


def get_backend() -> str:
    """The backend of the process group."""
    assert _group is not None
    return _group[0]


def destroy_process_group() -> None:
    """Forgets the process group."""
    global _group
    _group = None
