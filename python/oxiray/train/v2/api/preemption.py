"""What is told of machines that are taken away, under the name of the module in Ray."""

from oxiray.train import PreemptionInfo

__all__ = ["PreemptionInfo"]
