"""Every method of the client of Ray 2.60, run by Ray's own interpreter against an address: `python real_client.py ADDRESS`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from ray.job_submission import JobStatus, JobSubmissionClient


def ended(client: JobSubmissionClient, job: str) -> JobStatus:
    until = time.monotonic() + 120
    while not (status := client.get_job_status(job)).is_terminal():
        assert time.monotonic() < until, status
        time.sleep(0.05)
    return status


async def heard(client: JobSubmissionClient, job: str) -> str:
    return "".join([piece async for piece in client.tail_job_logs(job)])


def main(address: str) -> None:
    client = JobSubmissionClient(address, metadata={"who": "tests"}, headers={"X-Trace": "1"}, verify=False)
    assert client.get_version() == "4" and client.get_address() == address
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "x.py").write_text("import sys; print('hi'); sys.exit(int(sys.argv[1]))\n")
        (Path(folder) / "own_module").mkdir()
        (Path(folder) / "own_module" / "__init__.py").write_text("WORD = 'own'\n")
        environment = {"working_dir": folder, "py_modules": [f"{folder}/own_module"], "env_vars": {"A": "b"}}
        job = client.submit_job(
            entrypoint="python -c \"import own_module; print(own_module.WORD)\" && python x.py 0",
            runtime_env=environment, metadata={"a": "b"}, entrypoint_num_cpus=0.5, entrypoint_memory=1 << 20,
        )  # fmt: skip
        assert asyncio.run(heard(client, job)) == "own\nhi\n"
        assert ended(client, job) == JobStatus.SUCCEEDED
        assert client.get_job_logs(job) == "own\nhi\n"
        info = client.get_job_info(job)
        assert (info.submission_id, info.metadata["a"], info.driver_exit_code) == (job, "b", 0), info
        assert job in [one.submission_id for one in client.list_jobs()]
        failed = client.submit_job(entrypoint="python x.py 3", runtime_env={"working_dir": folder}, submission_id="real-failed")
        assert ended(client, failed) == JobStatus.FAILED
        assert client.get_job_info(failed).error_type == "JOB_ENTRYPOINT_COMMAND_ERROR"
    try:
        client.submit_job(entrypoint="true", submission_id="real-failed")
    except RuntimeError as error:
        assert "Please use a different submission_id" in str(error), error
    else:
        raise AssertionError("a second job of one name was taken")
    client.submit_job(entrypoint="sleep 600", submission_id="real-long")
    assert client.stop_job("real-long") is True
    assert ended(client, "real-long") == JobStatus.STOPPED
    assert client.stop_job("real-long") is False
    assert client.delete_job("real-long") is True
    try:
        client.get_job_info("real-long")
    except RuntimeError as error:
        assert "404" in str(error) and "Job real-long does not exist" in str(error), error
    else:
        raise AssertionError("a deleted job is told of")
    print("all methods answer")


if __name__ == "__main__":
    main(sys.argv[1])
