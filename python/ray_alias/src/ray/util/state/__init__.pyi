"""Types of `ray.util.state`: those of `oxiray.util.state`."""

from oxiray.util.state import *
