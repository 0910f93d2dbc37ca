"""Types of `ray.util.check_serialize`: those of `oxiray.util.check_serialize`."""

from oxiray.util.check_serialize import *
