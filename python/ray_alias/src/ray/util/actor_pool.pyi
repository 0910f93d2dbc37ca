"""Types of `ray.util.actor_pool`: those of `oxiray.util.actor_pool`."""

from oxiray.util.actor_pool import *
