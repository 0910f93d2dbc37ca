"""Types of `ray.util.metrics`: those of `oxiray.util.metrics`."""

from oxiray.util.metrics import *
