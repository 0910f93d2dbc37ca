"""Where a job stands, under the name of its module in Ray."""

from oxiray.job_submission import JobStatus

__all__ = ["JobStatus"]
