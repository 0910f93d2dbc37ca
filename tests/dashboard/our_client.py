"""Every method of our client against an address: `python our_client.py ADDRESS`. With a real Ray there, its answers are read."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from oxiray.job_submission import JobStatus, JobSubmissionClient


def ended(client: JobSubmissionClient, job: str) -> JobStatus:
    until = time.monotonic() + 120
    while not (status := client.get_job_status(job)).is_terminal():
        assert time.monotonic() < until, status
        time.sleep(0.05)
    return status


async def heard(client: JobSubmissionClient, job: str) -> str:
    return "".join([piece async for piece in client.tail_job_logs(job)])


def main(address: str) -> None:
    client = JobSubmissionClient(address)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "x.py").write_text("print('hi from', 'a folder')\n")
        job = client.submit_job(entrypoint="python x.py", runtime_env={"working_dir": folder}, metadata={"a": "b"})
        assert "hi from a folder\n" in asyncio.run(heard(client, job))
        assert ended(client, job) == JobStatus.SUCCEEDED
    assert "hi from a folder\n" in client.get_job_logs(job)
    info = client.get_job_info(job)
    assert (info.submission_id, info.metadata["a"], info.model_dump()["driver_exit_code"]) == (job, "b", 0)
    assert job in [one.submission_id for one in client.list_jobs()]
    client.submit_job(entrypoint="sleep 600", submission_id="ours-long")
    assert client.stop_job("ours-long") is True
    assert ended(client, "ours-long") == JobStatus.STOPPED
    assert client.delete_job("ours-long") is True
    print("all methods answer")


if __name__ == "__main__":
    main(sys.argv[1])
