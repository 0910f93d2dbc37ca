"""Callbacks, under the name of their module in Ray."""

from oxiray.train import UserCallback

__all__ = ["UserCallback"]
