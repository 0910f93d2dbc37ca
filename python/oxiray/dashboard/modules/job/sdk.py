"""The client that submits jobs, under the name of its module in Ray."""

from oxiray.job_submission import DriverInfo, JobDetails, JobStatus, JobSubmissionClient, JobType

__all__ = ["DriverInfo", "JobDetails", "JobStatus", "JobSubmissionClient", "JobType"]
