"""Types of `ray.util.helpers`: those of `oxiray.util.helpers`."""

from oxiray.util.helpers import *
