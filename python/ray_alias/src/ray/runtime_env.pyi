"""Types of `ray.runtime_env`: those of `oxiray.runtime_env`."""

from oxiray.runtime_env import *
