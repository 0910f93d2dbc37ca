"""Types of `ray.util.debug`: those of `oxiray.util.debug`."""

from oxiray.util.debug import *
