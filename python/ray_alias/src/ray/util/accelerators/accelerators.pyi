"""Types of `ray.util.accelerators.accelerators`: those of `oxiray.util.accelerators.accelerators`."""

from oxiray.util.accelerators.accelerators import *
