"""Types of `ray.experimental.internal_kv`: those of `oxiray.experimental.internal_kv`."""

from oxiray.experimental.internal_kv import *
