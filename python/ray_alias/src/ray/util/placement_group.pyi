"""Types of `ray.util.placement_group`: those of `oxiray.util.placement_group`."""

from oxiray.util.placement_group import *
