"""Types of `ray.util.state.api`: those of `oxiray.util.state.api`."""

from oxiray.util.state.api import *
