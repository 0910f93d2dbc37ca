"""Types of `ray.util.multiprocessing.pool`: those of `oxiray.util.multiprocessing.pool`."""

from oxiray.util.multiprocessing.pool import *
