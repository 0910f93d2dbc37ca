"""Types of `ray.job_config`: those of `oxiray.job_config`."""

from oxiray.job_config import *
