"""Types of `ray.types`: those of `oxiray.types`."""

from oxiray.types import *
