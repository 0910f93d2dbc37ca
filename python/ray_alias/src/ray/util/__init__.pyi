"""Types of `ray.util`: those of `oxiray.util`."""

from oxiray.util import *
