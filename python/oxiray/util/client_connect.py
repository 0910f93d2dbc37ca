"""Ray Client's functions to connect and to leave, for compatibility: a program is a driver of the cluster itself."""

from __future__ import annotations

from typing import Any

from oxiray import _missing, _session, _without_effect
from oxiray._init_options import CLIENT_SCHEME


def connect(
    conn_str: str,
    secure: bool = False,
    metadata: Any = None,
    connection_retries: int = 3,
    job_config: Any = None,
    namespace: str | None = None,
    *,
    ignore_version: bool = False,
    _credentials: Any = None,
    ray_init_kwargs: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Connects to the cluster at `conn_str`, as `init` does; deprecated in Ray. Returns facts of the connection.

    How a client would have spoken to its server (`secure`, `metadata`, `connection_retries`, `ignore_version`,
    `_credentials`) has no effect, and is told of once: there is none between. Raises `RuntimeError` where this process is
    connected already.
    """
    without = {"secure": secure, "metadata": metadata, "connection_retries": connection_retries, "ignore_version": ignore_version}
    _without_effect.tell("connect", without | {"_credentials": _credentials})
    options = {"job_config": job_config, "namespace": namespace, **(ray_init_kwargs or {})}
    context = _session.init(f"{CLIENT_SCHEME}{conn_str.removeprefix(CLIENT_SCHEME)}", **options)
    return {
        "num_clients": 1,
        "python_version": context.python_version,
        "ray_version": context.ray_version,
        "ray_commit": context.ray_commit,
    }


def disconnect() -> None:
    """Ends the connection. Does nothing where there is none."""
    _session.shutdown()


__all__ = ["connect", "disconnect"]

__getattr__ = _missing.attributes(__name__)
