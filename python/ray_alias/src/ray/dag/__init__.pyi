"""Types of `ray.dag`: those of `oxiray.dag`."""

from oxiray.dag import *
