"""Addresses as text, and free ports, for compatibility."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oxiray import _missing

if TYPE_CHECKING:
    import socket


def is_ipv6(host: str) -> bool:
    """Whether `host` is an address of IPv6."""
    import ipaddress

    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False


def is_localhost(host: str) -> bool:
    """Whether `host` names this machine to itself."""
    return host in ("localhost", "127.0.0.1", "::1")


def get_localhost_ip() -> str:
    """The address by which this machine names itself to itself."""
    return "127.0.0.1"


def build_address(host: str, port: int | str) -> str:
    """`host:port`, with an address of IPv6 in brackets."""
    return f"[{host}]:{port}" if host is not None and ":" in host else f"{host}:{port}"


def parse_address(address: str) -> tuple[str, str] | None:
    """Host and port of `host:port`; None where there is no port."""
    host, colon, port = address.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        return None
    return host.removeprefix("[").removesuffix("]"), port


def find_free_port(family: socket.AddressFamily | None = None) -> int:
    """A TCP port that nobody listened at a moment ago, of IPv4 unless another family is given."""
    import socket

    with socket.socket(family or socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("", 0))
        port: int = listener.getsockname()[1]
        return port


__all__ = ["build_address", "find_free_port", "get_localhost_ip", "is_ipv6", "is_localhost", "parse_address"]

__getattr__ = _missing.attributes(__name__)
