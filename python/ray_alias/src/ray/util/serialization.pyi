"""Types of `ray.util.serialization`: those of `oxiray.util.serialization`."""

from oxiray.util.serialization import *
