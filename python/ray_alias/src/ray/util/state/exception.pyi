"""Types of `ray.util.state.exception`: those of `oxiray.util.state.exception`."""

from oxiray.util.state.exception import *
