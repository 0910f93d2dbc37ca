"""Types of `ray`: those of `oxiray`."""

from oxiray import *
from ray import cloudpickle as cloudpickle

__version__: str
__commit__: str
