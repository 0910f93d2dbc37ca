"""Types of `ray.util.joblib`: those of `oxiray.util.joblib`."""

from oxiray.util.joblib import *
