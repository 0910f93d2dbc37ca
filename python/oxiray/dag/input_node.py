"""The module in which Ray has `InputNode`, for compatibility."""

from oxiray.dag import InputNode

__all__ = ["InputNode"]
