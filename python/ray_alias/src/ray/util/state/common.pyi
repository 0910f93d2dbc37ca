"""Types of `ray.util.state.common`: those of `oxiray.util.state.common`."""

from oxiray.util.state.common import *
