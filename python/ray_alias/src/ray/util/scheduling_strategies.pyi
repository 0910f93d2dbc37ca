"""Types of `ray.util.scheduling_strategies`: those of `oxiray.util.scheduling_strategies`."""

from oxiray.util.scheduling_strategies import *
