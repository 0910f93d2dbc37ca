"""Types of `ray.util.multiprocessing`: those of `oxiray.util.multiprocessing`."""

from oxiray.util.multiprocessing import *
