"""`ray.job_submission.JobInfo`: its fields, what it says of itself, and its JSON."""

from __future__ import annotations

import json

import pytest
import ray.job_submission
from ray.job_submission import JobErrorType, JobInfo, JobStatus


def test_a_job_says_where_it_stands_unless_it_is_told_what_to_say() -> None:
    assert JobInfo(status=JobStatus.RUNNING, entrypoint="x").message == "Job is currently running."
    assert JobInfo(JobStatus.STOPPED, "x").message == "Job was intentionally stopped."
    assert JobInfo(JobStatus.SUCCEEDED, "x").message == "Job finished successfully."
    assert JobInfo("FAILED", "x").message == "Job failed."  # type: ignore[arg-type]
    assert JobInfo(JobStatus.FAILED, "x", message="it was mine").message == "it was mine"


def test_a_job_that_has_not_started_says_what_it_may_wait_for() -> None:
    assert JobInfo(JobStatus.PENDING, "x", entrypoint_num_cpus=0, runtime_env={}).message == "Job has not started yet."
    resources = " It may be waiting for resources (CPUs, GPUs, memory, custom resources) to become available."
    environment = " It may be waiting for the runtime environment to be set up."
    assert JobInfo(JobStatus.PENDING, "x", entrypoint_num_gpus=0.5).message == f"Job has not started yet.{resources}"
    both = JobInfo(JobStatus.PENDING, "x", entrypoint_resources={"a": 1}, runtime_env={"env_vars": {"A": "b"}})
    assert both.message == f"Job has not started yet.{resources}{environment}"


def test_a_job_comes_back_from_its_json() -> None:
    job = JobInfo(
        JobStatus.FAILED,
        "python x.py",
        error_type=JobErrorType.JOB_ENTRYPOINT_COMMAND_ERROR,
        start_time=1,
        end_time=2,
        metadata={"k": "v"},
        runtime_env={"env_vars": {"A": "b"}},
        entrypoint_resources={"a": 1},
        driver_exit_code=3,
    )
    told = json.loads(json.dumps(job.to_json()))
    assert (told["status"], told["error_type"]) == ("FAILED", "JOB_ENTRYPOINT_COMMAND_ERROR")
    assert "runtime_env" not in told
    assert json.loads(told["runtime_env_json"]) == job.runtime_env
    assert JobInfo.from_json(told) == job


def test_a_job_without_an_environment_has_none_in_its_json() -> None:
    told = JobInfo(JobStatus.RUNNING, "x").to_json()
    assert "runtime_env_json" not in told
    assert told["error_type"] is None
    assert JobInfo.from_json(told).runtime_env is None


def test_a_status_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="LOST"):
        JobInfo("LOST", "x")  # type: ignore[arg-type]


def test_the_name_is_public() -> None:
    assert "JobInfo" in ray.job_submission.__all__
