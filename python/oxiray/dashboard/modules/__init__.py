"""Ray's older name for what is under `ray.job_submission`."""
