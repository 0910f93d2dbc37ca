"""`multiprocessing.Pool` over actors, on every machine of the cluster."""

from multiprocessing import JoinableQueue, TimeoutError

from oxiray import _missing
from oxiray.util.multiprocessing.pool import Pool

__all__ = ["JoinableQueue", "Pool", "TimeoutError"]

__getattr__ = _missing.attributes(__name__)
