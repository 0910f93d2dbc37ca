"""What is known of a job, under the name of its module in Ray."""

from oxiray.job_submission import DriverInfo, JobDetails, JobType

__all__ = ["DriverInfo", "JobDetails", "JobType"]
