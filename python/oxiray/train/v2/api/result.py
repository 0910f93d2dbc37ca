"""What `fit()` returns, under the name of its module in Ray."""

from oxiray.train import Result

__all__ = ["Result"]
