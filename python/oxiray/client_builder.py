"""Ray Client's way to connect, for compatibility: a program is a driver of the cluster itself, wherever it runs.

`client("host:port").namespace("n").connect()` is `init("host:port", namespace="n")`.
"""

from __future__ import annotations

from typing import Any

from oxiray import _missing, _session
from oxiray._init_options import CLIENT_SCHEME
from oxiray._version import RAY_COMMIT, RAY_VERSION


class ClientContext:
    """What `connect()` returns. As a context manager it ends the connection."""

    def __init__(self, context: _session.RayContext) -> None:
        self.dashboard_url = context.dashboard_url
        self.python_version = context.python_version
        self.ray_version = RAY_VERSION
        self.ray_commit = RAY_COMMIT

    def __enter__(self) -> ClientContext:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        """Ends the connection."""
        _session.shutdown()


class ClientBuilder:
    """What is to be said to `init`, piece by piece. `address` is the cluster's, as `init` takes it."""

    def __init__(self, address: str | None) -> None:
        self.address = address
        self._options: dict[str, Any] = {}

    def env(self, env: dict[str, Any]) -> ClientBuilder:
        """The runtime environment of the connection."""
        self._options["runtime_env"] = env
        return self

    def namespace(self, namespace: str) -> ClientBuilder:
        """Where the program's actors have their names."""
        self._options["namespace"] = namespace
        return self

    def connect(self) -> ClientContext:
        """Connects. Raises what `init` raises."""
        address = self.address
        if address not in (None, "local", "auto") and not str(address).startswith(CLIENT_SCHEME):
            address = f"{CLIENT_SCHEME}{address}"
        return ClientContext(_session.init(address, **self._options))


def client(address: str | None = None, _deprecation_warn_enabled: bool = True) -> ClientBuilder:
    """Begins to describe a connection to the cluster at `address`; deprecated in Ray, as `init(address)` does the same."""
    return ClientBuilder(address)


__all__ = ["ClientBuilder", "ClientContext", "client"]

__getattr__ = _missing.attributes(__name__)
