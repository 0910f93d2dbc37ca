"""Types of `ray.util.accelerators`: those of `oxiray.util.accelerators`."""

from oxiray.util.accelerators.accelerators import *

NVIDIA_TESLA_A100: str
