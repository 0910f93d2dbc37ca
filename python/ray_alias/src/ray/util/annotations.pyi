"""Types of `ray.util.annotations`: those of `oxiray.util.annotations`."""

from oxiray.util.annotations import *
