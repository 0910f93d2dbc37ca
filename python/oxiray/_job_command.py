"""`oxiray job` over HTTP: what the native command was told, done by the client of `ray.job_submission`.

The native command has read its options, and leaves them on standard input as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any, NoReturn

from oxiray.job_submission import JobDetails, JobStatus, JobSubmissionClient


def main() -> NoReturn:
    """Carries out one order; the exit status is 1 where it fails, or the job that it waits for."""
    about = json.load(sys.stdin)
    try:
        sys.exit(_carry_out(about))
    except (ConnectionError, RuntimeError, TypeError, ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def _carry_out(about: dict[str, Any]) -> int:
    # What the command was told wins over what the program that started it says.
    os.environ.pop("RAY_API_SERVER_ADDRESS", None)
    os.environ["RAY_ADDRESS"] = about["address"]
    verify = {"true": True, "false": False}.get(about["verify"].lower(), about["verify"])
    client = JobSubmissionClient(about["address"], headers=about["headers"] or None, verify=verify)
    order = about["order"]
    if order["do"] == "submit":
        return _submit(client, order)
    if order["do"] == "list":
        _list(client.list_jobs(), order["json"])
        return 0
    job = _named(client, order["id"])
    if order["do"] == "logs":
        _logs(client, job, order["follow"])
    elif order["do"] == "status":
        details = client.get_job_info(job)
        print(details.json() if order["json"] else _sentence(details))
    elif order["do"] == "stop":
        client.stop_job(job)
        if order["wait"]:
            _logs(client, job, follow=True, shows=False)
        print(_sentence(client.get_job_info(job)))
    else:
        client.delete_job(job)
        print(f"Job {job} is deleted.")
    return 0


def _named(client: JobSubmissionClient, given: str) -> str:
    """The whole name of the job that was given, or whose beginning was. The server says what is wrong with an unknown one."""
    names = {job.submission_id for job in client.list_jobs() if job.submission_id}
    found = {given} if given in names else {name for name in names if name.startswith(given)}
    if len(found) > 1:
        raise ValueError(f"`{given}` may be any of {len(found)} jobs: give more of the name\n  " + "\n  ".join(sorted(found)))
    return next(iter(found), given)


def _submit(client: JobSubmissionClient, order: dict[str, Any]) -> int:
    resources = dict(order["resources"])
    job = client.submit_job(
        entrypoint=order["entrypoint"],
        submission_id=order["id"],
        runtime_env=order["runtime_env"],
        metadata=order["metadata"],
        entrypoint_num_cpus=resources.pop("CPU", None),
        entrypoint_num_gpus=resources.pop("GPU", None),
        entrypoint_memory=int(memory) if (memory := resources.pop("memory", None)) else None,
        entrypoint_resources=resources or None,
    )
    print(f"Job {job} is submitted.", file=sys.stderr)
    if not order["wait"]:
        return 0
    _logs(client, job, follow=True)
    details = client.get_job_info(job)
    if details.status != JobStatus.SUCCEEDED:
        print(f"error: job {job} {details.status}: {details.message}", file=sys.stderr)
        return 1
    print(f"Job {job} succeeded.", file=sys.stderr)
    return 0


def _logs(client: JobSubmissionClient, job: str, follow: bool, shows: bool = True) -> None:
    async def tail() -> None:
        async for piece in client.tail_job_logs(job):
            if shows:
                print(piece, end="", flush=True)

    if follow:
        asyncio.run(tail())
    else:
        print(client.get_job_logs(job), end="", flush=True)


def _list(jobs: list[JobDetails], as_json: bool) -> None:
    if as_json:
        print(json.dumps([job.model_dump() for job in jobs], indent=2))
        return
    for job in jobs:
        print(f"{job.submission_id or job.job_id}  {job.status}  {job.entrypoint}")


def _sentence(job: JobDetails) -> str:
    return f"Job {job.submission_id or job.job_id} {job.status}: {job.message}"
