"""What Ray Serve asks of Ray's gRPC: channels between its replicas, which are not in Oxiray.

Calls of a handle are calls of actors, which go straight from process to process. Ray Serve also starts a server of gRPC in
every replica, on every address of the machine, that unpickles what it is sent; here that server is none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from oxiray import _missing


class _NoServer:
    """Takes handlers, and listens nowhere."""

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Any) -> None:
        """Nothing calls them."""

    def add_registered_method_handlers(self, service_name: str, method_handlers: Any) -> None:
        """Nothing calls them."""

    def add_insecure_port(self, address: str) -> int:
        """0: no port is opened."""
        return 0

    def add_secure_port(self, address: str, server_credentials: Any) -> int:
        """0: no port is opened."""
        return 0

    async def start(self) -> None:
        """Starts nothing."""

    async def stop(self, grace: float | None) -> None:
        """Nothing was started."""


def create_grpc_server_with_interceptors(*_: Any, **__: Any) -> _NoServer:
    """What listens nowhere: calls between replicas are calls of actors."""
    return _NoServer()


class _NoChannel:
    """Has the methods that stubs are made of, and connects to nothing."""

    def unary_unary(self, method: str, *_: Any, **__: Any) -> Callable[..., NoReturn]:
        """What raises `NotImplementedError` when it is called."""
        return functools.partial(_refuse, method)

    unary_stream = stream_unary = stream_stream = unary_unary

    async def close(self, grace: float | None = None) -> None:
        """Nothing was opened."""


def _refuse(method: str, *_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError(
        f"{method}: calls between replicas over gRPC are not in Oxiray, where calls of a handle go from process to process as "
        "calls of actors do. Leave RAY_SERVE_USE_GRPC_BY_DEFAULT, RAY_SERVE_PROXY_USE_GRPC and RAY_SERVE_THROUGHPUT_OPTIMIZED "
        "unset, and the option _by_reference as it is"
    )


def init_grpc_channel(*_: Any, **__: Any) -> _NoChannel:
    """What connects to nothing; a call over it raises `NotImplementedError`."""
    return _NoChannel()


__all__ = ["create_grpc_server_with_interceptors", "init_grpc_channel"]

__getattr__ = _missing.attributes(__name__)
