"""Conversions that libraries take from here."""

from __future__ import annotations

from oxiray import _missing


def binary_to_hex(identifier: bytes) -> str:
    """An identifier's bytes as hexadecimal digits."""
    return identifier.hex()


def hex_to_binary(hex_identifier: str | bytes) -> bytes:
    """The bytes that hexadecimal digits stand for."""
    return bytes.fromhex(hex_identifier if isinstance(hex_identifier, str) else hex_identifier.decode())


__getattr__ = _missing.attributes(__name__)
