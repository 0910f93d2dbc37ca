"""Job submission: programs that the cluster runs by itself."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.job_submission import JobStatus, JobSubmissionClient

Eventually = Callable[..., Any]


@pytest.fixture(scope="module")
def client() -> Iterator[JobSubmissionClient]:
    ray.shutdown()
    context = ray.init(num_cpus=2, include_dashboard=True)
    url = context.dashboard_url
    yield JobSubmissionClient(f"http://{url}" if url else context.address_info["address"])
    ray.shutdown()


def ended(client: JobSubmissionClient, job: str, eventually: Eventually) -> JobStatus:
    eventually(lambda: client.get_job_status(job).is_terminal(), 60)
    return client.get_job_status(job)


def test_a_job_succeeds_and_its_output_is_kept(client: JobSubmissionClient, eventually: Eventually) -> None:
    job = client.submit_job(entrypoint="echo hello", metadata={"key": "value"})
    assert ended(client, job, eventually) == JobStatus.SUCCEEDED
    assert "hello" in client.get_job_logs(job)
    info = client.get_job_info(job)
    assert (info.status, info.entrypoint, info.submission_id) == (JobStatus.SUCCEEDED, "echo hello", job)
    assert info.metadata["key"] == "value"
    assert info.start_time <= info.end_time


def test_a_job_that_fails_is_failed(client: JobSubmissionClient, eventually: Eventually) -> None:
    job = client.submit_job(entrypoint="exit 3")
    assert ended(client, job, eventually) == JobStatus.FAILED
    assert client.get_job_info(job).driver_exit_code == 3


def test_a_job_has_the_name_that_it_is_given(client: JobSubmissionClient, eventually: Eventually) -> None:
    assert client.submit_job(entrypoint="true", submission_id="compat-named") == "compat-named"
    assert ended(client, "compat-named", eventually) == JobStatus.SUCCEEDED


def test_a_name_is_for_one_job(client: JobSubmissionClient) -> None:
    client.submit_job(entrypoint="true", submission_id="compat-once")
    with pytest.raises(RuntimeError):
        client.submit_job(entrypoint="false", submission_id="compat-once")


def test_a_job_is_stopped(client: JobSubmissionClient, eventually: Eventually) -> None:
    job = client.submit_job(entrypoint="sleep 100")
    eventually(lambda: client.get_job_status(job) == JobStatus.RUNNING, 60)
    assert client.stop_job(job) is True
    assert ended(client, job, eventually) == JobStatus.STOPPED


def test_a_job_has_its_runtime_environment(client: JobSubmissionClient, eventually: Eventually) -> None:
    job = client.submit_job(entrypoint="echo $COMPAT_JOB", runtime_env={"env_vars": {"COMPAT_JOB": "in the job"}})
    ended(client, job, eventually)
    assert "in the job" in client.get_job_logs(job)


def test_a_folder_may_go_when_its_job_is_submitted(client: JobSubmissionClient, eventually: Eventually, tmp_path: Path) -> None:
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "said.txt").write_text("from the folder")
    job = client.submit_job(entrypoint="cat said.txt", runtime_env={"working_dir": str(folder)})
    shutil.rmtree(folder)
    assert ended(client, job, eventually) == JobStatus.SUCCEEDED
    assert "from the folder" in client.get_job_logs(job)


def test_the_client_has_the_name_of_its_module() -> None:
    from ray.dashboard.modules.job import common, sdk

    assert sdk.JobSubmissionClient is JobSubmissionClient
    assert common.JobStatus is JobStatus


def test_jobs_are_listed(client: JobSubmissionClient, eventually: Eventually) -> None:
    job = client.submit_job(entrypoint="true")
    ended(client, job, eventually)
    assert job in [info.submission_id for info in client.list_jobs()]


def test_an_unknown_job_is_a_runtime_error(client: JobSubmissionClient) -> None:
    for ask in (client.get_job_status, client.get_job_info, client.get_job_logs, client.stop_job):
        with pytest.raises(RuntimeError):
            ask("compat-nobody")


def test_the_output_of_a_job_is_followed(client: JobSubmissionClient) -> None:
    job = client.submit_job(entrypoint="echo first; sleep 0.5; echo second")

    async def follow() -> str:
        return "".join([piece async for piece in client.tail_job_logs(job)])

    shown = asyncio.run(follow())
    assert "first" in shown and "second" in shown


def test_a_status_is_text(client: JobSubmissionClient) -> None:
    assert JobStatus.RUNNING == "RUNNING" and str(JobStatus.FAILED) == "FAILED"
    assert not JobStatus.PENDING.is_terminal() and JobStatus.STOPPED.is_terminal()


def test_a_job_that_ended_is_deleted(client: JobSubmissionClient, eventually: Eventually) -> None:
    job = client.submit_job(entrypoint="true")
    assert ended(client, job, eventually) == JobStatus.SUCCEEDED
    assert client.delete_job(job) is True
    assert job not in [one.submission_id for one in client.list_jobs()]
    with pytest.raises(RuntimeError, match="404|no job"):
        client.get_job_status(job)


def test_a_job_that_runs_is_not_deleted(client: JobSubmissionClient, eventually: Eventually) -> None:
    job = client.submit_job(entrypoint="sleep 1000")
    eventually(lambda: client.get_job_status(job) == JobStatus.RUNNING, 60)
    with pytest.raises(RuntimeError, match="it is in a non-terminal state RUNNING"):
        client.delete_job(job)
    client.stop_job(job)
    assert ended(client, job, eventually) == JobStatus.STOPPED


def test_no_cluster_is_a_connection_error() -> None:
    ray.shutdown()
    with pytest.raises(ConnectionError):
        JobSubmissionClient("http://127.0.0.1:1")
