"""Types of `ray.experimental`: those of `oxiray.experimental`."""

from oxiray.experimental import *
