"""Signatures of functions and methods, for compatibility."""

from __future__ import annotations

import inspect
from typing import Any

from oxiray import _missing


def get_signature(func: Any) -> inspect.Signature:
    """The signature of a function."""
    return inspect.signature(func)


def extract_signature(func: Any, ignore_first: bool = False) -> list[inspect.Parameter]:
    """The parameters of a function; without the first of a method. Raises `ValueError` where that is not there."""
    parameters = list(inspect.signature(func).parameters.values())
    if not ignore_first:
        return parameters
    if not parameters:
        raise ValueError(f"Methods must take a 'self' argument, but the method '{func.__name__}' does not have one.")
    return parameters[1:]


def validate_args(
    signature_parameters: list[inspect.Parameter], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raises `TypeError` where arguments do not fit the parameters."""
    inspect.Signature(signature_parameters).bind(*args, **kwargs)


__all__ = ["extract_signature", "get_signature", "validate_args"]

__getattr__ = _missing.attributes(__name__)
