"""Submitting programs to a cluster from Python, as `oxiray job` does from a shell.

Invariant: every request goes through the native command, so that both mean the same by each word.
"""

from __future__ import annotations

import asyncio
import enum
import json
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from oxiray import _cli, _environment, _missing
from oxiray.runtime_env import checked

#: The most jobs that are listed.
_JOBS_MAX = 10_000


class JobStatus(str, enum.Enum):
    """Where a job stands."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    def __str__(self) -> str:
        return self.value

    def is_terminal(self) -> bool:
        """Whether it stays so."""
        return self in (JobStatus.STOPPED, JobStatus.SUCCEEDED, JobStatus.FAILED)


class JobType(str, enum.Enum):
    """How a job came to the cluster: submitted, or as a program that connected."""

    SUBMISSION = "SUBMISSION"
    DRIVER = "DRIVER"


@dataclass
class DriverInfo:
    """The program that connected for a job: the job's identifier, its machine's address, its process."""

    id: str
    node_ip_address: str
    pid: str


@dataclass
class JobDetails:
    """All that is known of a job. Times are milliseconds since 1970; what does not apply is None."""

    type: JobType
    status: JobStatus
    entrypoint: str
    job_id: str | None = None
    submission_id: str | None = None
    driver_info: DriverInfo | None = None
    message: str | None = None
    error_type: str | None = None
    start_time: int | None = None
    end_time: int | None = None
    metadata: dict[str, str] | None = None
    runtime_env: dict[str, Any] | None = None
    driver_agent_http_address: str | None = None
    driver_node_id: str | None = None
    driver_exit_code: int | None = None


class JobSubmissionClient:
    """Speaks for one cluster of this machine.

    `address` is what `init` takes. A dashboard's address (`http://...`), which the clients of Ray take, stands for the
    cluster that RAY_ADDRESS names, or else for the one that runs here, since there is no dashboard; `cookies`, `headers`,
    `verify` and `metadata` are for its requests, and refused unless they are None or empty. `create_cluster_if_needed` is
    refused too. Raises `ConnectionError` where no cluster answers.
    """

    def __init__(
        self,
        address: str | None = None,
        create_cluster_if_needed: bool = False,
        cookies: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        headers: dict[str, Any] | None = None,
        verify: str | bool | None = True,
    ) -> None:
        for name, value in {"cookies": cookies, "metadata": metadata, "headers": headers}.items():
            if value is not None and not isinstance(value, dict):
                raise TypeError(f"{name} must be a dict, got {type(value)}")
            if value:
                raise ValueError(f"{name} of requests to a dashboard were given, and there is no dashboard: leave them out")
        if address is not None and not isinstance(address, str):
            raise TypeError(f"address must be a string, got {type(address)}")
        if not isinstance(verify, (str, bool)):
            raise TypeError(f"verify must be a str or bool, got {type(verify)}")
        if create_cluster_if_needed:
            raise ValueError("create_cluster_if_needed is not available: start a cluster with `oxiray start --head`")
        self._asked = address
        self._address = _address(address)
        try:
            self._run("list")
        except RuntimeError as error:
            raise ConnectionError(f"Failed to connect to Ray at address: {address or 'auto'}. {error}") from None

    def get_address(self) -> str:
        """The address that was given, else that of the cluster."""
        return self._asked or self._address

    def submit_job(
        self,
        *,
        entrypoint: str,
        job_id: str | None = None,
        runtime_env: dict[str, Any] | None = None,
        metadata: dict[str, str] | None = None,
        submission_id: str | None = None,
        entrypoint_num_cpus: int | float | None = None,
        entrypoint_num_gpus: int | float | None = None,
        entrypoint_memory: int | None = None,
        entrypoint_resources: dict[str, float] | None = None,
        entrypoint_label_selector: dict[str, str] | None = None,
        priority: int | None = None,
    ) -> str:
        """Has the cluster run `entrypoint`, a line for the shell; returns its submission id at once.

        Folders and files of `runtime_env` are packed before this returns, and may be removed then. `priority`, an argument of
        Oxiray's own, says how urgent what it makes is, from -1000 to 1000: the higher one goes first.
        Raises `ValueError` for what makes no sense, `RuntimeError` where another job has the id.
        """
        if entrypoint_label_selector:
            raise ValueError("entrypoint_label_selector is not available: name a resource in entrypoint_resources")
        if metadata and not all(isinstance(text, str) for pair in metadata.items() for text in pair):
            raise TypeError(f"metadata are texts by names, got {metadata!r}")
        options = []
        for option, value in (
            ("submission-id", submission_id or job_id),
            ("runtime-env-json", json.dumps(_packed(checked(runtime_env) or {})) if runtime_env else None),
            ("metadata-json", json.dumps(metadata) if metadata else None),
            ("entrypoint-num-cpus", entrypoint_num_cpus),
            ("entrypoint-num-gpus", entrypoint_num_gpus),
            ("entrypoint-memory", entrypoint_memory),
            ("entrypoint-resources", json.dumps(entrypoint_resources) if entrypoint_resources else None),
            ("priority", priority),
        ):
            if value is not None:
                options.append(f"--{option}={value}")
        told = self._run("submit", "--no-wait", *options, after=["--", entrypoint], wants_errors=True)
        return told.partition("Job ")[2].partition(" is submitted.")[0]

    def stop_job(self, job_id: str) -> bool:
        """Asks a job to end; returns whether it had not ended yet. Raises `RuntimeError` where there is none of this id."""
        was_over = self.get_job_status(job_id).is_terminal()
        self._run("stop", "--no-wait", after=["--", job_id])
        return not was_over

    def get_job_status(self, job_id: str) -> JobStatus:
        """Where a job stands. Raises `RuntimeError` where there is none of this id."""
        return JobStatus(json.loads(self._run("status", "--json", after=["--", job_id]))["status"])

    def get_job_info(self, job_id: str) -> JobDetails:
        """All that is known of a job. Raises `RuntimeError` where there is none of this id."""
        for job in self.list_jobs():
            if job_id in (job.submission_id, job.job_id):
                return job
        raise RuntimeError(f"Request failed with status code 404: there is no job {job_id!r}; list_jobs() names those there are")

    def list_jobs(self) -> list[JobDetails]:
        """All jobs, submitted or not, that the cluster remembers."""
        command = ["list", "jobs", "--format=json", "--detail", f"--limit={_JOBS_MAX}", f"--address={self._address}"]
        return [_details(row) for row in json.loads(_command(command))]

    def get_job_logs(self, job_id: str) -> str:
        """What a job has printed. Raises `RuntimeError` where there is none of this id."""
        return self._run("logs", after=["--", job_id])

    async def tail_job_logs(self, job_id: str) -> AsyncIterator[str]:
        """What a job prints, until it ends. Raises `RuntimeError` where there is none of this id."""
        command = [str(_cli.native_binary()), "job", "logs", "--follow", f"--address={self._address}", "--", job_id]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
        assert process.stdout is not None and process.stderr is not None
        try:
            while piece := await process.stdout.readline():
                yield piece.decode(errors="replace")
            if await process.wait() != 0:
                raise RuntimeError((await process.stderr.read()).decode(errors="replace").removeprefix("error: ").strip())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    def delete_job(self, job_id: str) -> bool:
        """Has the cluster forget a job that has ended; returns True. Raises `RuntimeError` where it has not, or there is none.

        The file of what it printed stays until the session's logs go.
        """
        self._run("delete", after=["--", job_id])
        return True

    def _run(self, order: str, *options: str, after: list[str] | None = None, wants_errors: bool = False) -> str:
        command = ["job", order, f"--address={self._address}", *options, *(after or [])]
        return _command(command, wants_errors=wants_errors)


def _address(given: str | None) -> str:
    """What `--address` of the native command is to be."""
    address = given
    if address is None or address.startswith(("http://", "https://")):
        address = os.environ.get("RAY_ADDRESS") or "auto"
    if address.startswith(("http://", "https://")):
        return "auto"
    return address.removeprefix("ray://")


def _packed(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The environment with packages in the place of folders."""
    folders = {name: environment[name] for name in ("working_dir", "py_modules", "excludes") if environment.get(name)}
    return {**environment, **_environment.settled(folders)}


def _command(words: list[str], *, wants_errors: bool = False) -> str:
    """What the native command prints. Raises `RuntimeError` with what it said where it failed."""
    done = subprocess.run([str(_cli.native_binary()), *words], capture_output=True, text=True, check=False, errors="replace")
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().removeprefix("error: "))
    return done.stderr if wants_errors else done.stdout


def _details(row: dict[str, Any]) -> JobDetails:
    driver = row.pop("driver_info")
    kind, status = JobType(row.pop("type")), JobStatus(row.pop("status"))
    return JobDetails(kind, status, driver_info=DriverInfo(**driver) if driver else None, **row)


__all__ = ["DriverInfo", "JobDetails", "JobStatus", "JobSubmissionClient", "JobType"]

__getattr__ = _missing.attributes(__name__)
