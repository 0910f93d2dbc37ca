"""Types of `ray.util.queue`: those of `oxiray.util.queue`."""

from oxiray.util.queue import *
