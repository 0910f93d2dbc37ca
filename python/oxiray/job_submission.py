"""Submitting programs to a cluster from Python, as `oxiray job` does from a shell.

Invariant: what goes to a cluster of this machine goes through the native command, so that both mean the same by each word; what
goes over HTTP means what Ray's own client means by it.
"""

from __future__ import annotations

import asyncio
import enum
import json
import os
import subprocess
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from oxiray import _cli, _environment, _job_http, _missing
from oxiray.runtime_env import checked

#: The most jobs that are listed.
_JOBS_MAX = 10_000
#: The version of the jobs API, as Ray counts.
_API_VERSION = "4"
#: What addresses over HTTP begin with.
_HTTP = ("http://", "https://")


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


class JobErrorType(str, enum.Enum):
    """What kind of failure ended a job."""

    RUNTIME_ENV_SETUP_FAILURE = "RUNTIME_ENV_SETUP_FAILURE"
    JOB_SUPERVISOR_ACTOR_START_TIMEOUT = "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"
    JOB_SUPERVISOR_ACTOR_START_FAILURE = "JOB_SUPERVISOR_ACTOR_START_FAILURE"
    JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE = "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE"
    JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE = "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE"
    JOB_SUPERVISOR_ACTOR_DIED = "JOB_SUPERVISOR_ACTOR_DIED"
    JOB_ENTRYPOINT_COMMAND_START_ERROR = "JOB_ENTRYPOINT_COMMAND_START_ERROR"
    JOB_ENTRYPOINT_COMMAND_ERROR = "JOB_ENTRYPOINT_COMMAND_ERROR"


class _Model:
    """What Ray's models of these do beside having fields."""

    def model_dump(self) -> dict[str, Any]:
        """The fields by name, those within too."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    def json(self) -> str:
        """The same as JSON."""
        return json.dumps(self.model_dump())

    #: As earlier versions of pydantic call it.
    dict = model_dump


@dataclass
class DriverInfo(_Model):
    """The program that connected for a job: the job's identifier, its machine's address, its process."""

    id: str
    node_ip_address: str
    pid: str


@dataclass
class JobDetails(_Model):
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


#: What is said of a job of which nothing else is known, by where it stands.
_MESSAGES = {
    JobStatus.RUNNING: "Job is currently running.",
    JobStatus.STOPPED: "Job was intentionally stopped.",
    JobStatus.SUCCEEDED: "Job finished successfully.",
    JobStatus.FAILED: "Job failed.",
}


@dataclass
class JobInfo:
    """What programs keep of a job that was submitted; clients answer with `JobDetails`. Times are milliseconds since 1970."""

    status: JobStatus
    entrypoint: str
    message: str | None = None
    error_type: JobErrorType | None = None
    start_time: int | None = None
    end_time: int | None = None
    metadata: dict[str, str] | None = None
    runtime_env: dict[str, Any] | None = None
    entrypoint_num_cpus: int | float | None = None
    entrypoint_num_gpus: int | float | None = None
    entrypoint_memory: int | None = None
    entrypoint_resources: dict[str, float] | None = None
    driver_agent_http_address: str | None = None
    driver_node_id: str | None = None
    driver_exit_code: int | None = None

    def __post_init__(self) -> None:
        self.status = JobStatus(self.status)
        if self.message is None:
            self.message = _MESSAGES.get(self.status) or self._why_pending()

    def _why_pending(self) -> str:
        said = "Job has not started yet."
        amounts = (self.entrypoint_num_cpus, self.entrypoint_num_gpus, self.entrypoint_memory)
        if any(amount and amount > 0 for amount in amounts) or self.entrypoint_resources:
            said += " It may be waiting for resources (CPUs, GPUs, memory, custom resources) to become available."
        if self.runtime_env:
            said += " It may be waiting for the runtime environment to be set up."
        return said

    def to_json(self) -> dict[str, Any]:
        """The fields by name, as JSON can hold them: the runtime environment is `runtime_env_json`, a text."""
        fields = asdict(self)
        fields["status"] = self.status.value
        fields["error_type"] = JobErrorType(self.error_type).value if self.error_type else None
        if (environment := fields.pop("runtime_env")) is not None:
            fields["runtime_env_json"] = json.dumps(environment)
        return fields

    @classmethod
    def from_json(cls, json_dict: dict[str, Any]) -> JobInfo:
        """What `to_json` wrote; names that are no fields are left out."""
        fields = {name: value for name, value in json_dict.items() if name in cls.__dataclass_fields__}
        if (environment := json_dict.get("runtime_env_json")) is not None:
            fields["runtime_env"] = json.loads(environment)
        if fields.get("error_type"):
            fields["error_type"] = JobErrorType(fields["error_type"])
        return cls(**fields)


class JobSubmissionClient:
    """Speaks for one cluster.

    `address` is what `init` takes, for a cluster of this machine, or `http://HOST:PORT` or `https://HOST:PORT`, where Oxiray's
    dashboard or Ray's answers; RAY_API_SERVER_ADDRESS wins over it, and so does RAY_ADDRESS where it is such an address. An address
    of this machine at which nobody listens stands for the cluster that runs here. `headers`, `cookies` and `verify` (whether the
    certificate is looked at, or the file with authorities) are for requests over HTTP, and so are RAY_JOB_HEADERS and RAY_AUTH_TOKEN;
    `metadata` is noted with each job. `create_cluster_if_needed` is refused. Raises `ConnectionError` where no cluster answers.
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
        if address is not None and not isinstance(address, str):
            raise TypeError(f"address must be a string, got {type(address)}")
        if not isinstance(verify, (str, bool)):
            raise TypeError(f"verify must be a str or bool, got {type(verify)}")
        if create_cluster_if_needed:
            raise ValueError("create_cluster_if_needed is not available: start a cluster with `oxiray start --head`")
        self._metadata = dict(metadata or {})
        self._way: _ByHttp | _ByCommand = _way(address, headers, cookies, verify)
        self._asked = address

    def get_address(self) -> str:
        """The address that was given, else that of the cluster."""
        return self._asked or self._way.address

    def get_version(self) -> str:
        """The version of the jobs API."""
        return self._way.version()

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
        metadata = {**self._metadata, **(metadata or {})}
        if not all(isinstance(text, str) for pair in metadata.items() for text in pair):
            raise TypeError(f"metadata are texts by names, got {metadata!r}")
        environment = dict(checked(runtime_env) or {}) if runtime_env else {}
        if priority is not None:
            variables = {**(environment.get("env_vars") or {}), "OXIRAY_JOB_PRIORITY": str(priority)}
            environment["env_vars"] = variables
        return self._way.submit(
            {
                "entrypoint": entrypoint,
                "submission_id": submission_id or job_id,
                "runtime_env": environment or None,
                "metadata": metadata or None,
                "entrypoint_num_cpus": entrypoint_num_cpus,
                "entrypoint_num_gpus": entrypoint_num_gpus,
                "entrypoint_memory": entrypoint_memory,
                "entrypoint_resources": entrypoint_resources or None,
                "entrypoint_label_selector": entrypoint_label_selector or None,
            }
        )

    def stop_job(self, job_id: str) -> bool:
        """Asks a job to end; returns whether it had not ended yet. Raises `RuntimeError` where there is none of this id."""
        return self._way.stop(job_id)

    def get_job_status(self, job_id: str) -> JobStatus:
        """Where a job stands. Raises `RuntimeError` where there is none of this id."""
        return self._way.status(job_id)

    def get_job_info(self, job_id: str) -> JobDetails:
        """All that is known of a job. Raises `RuntimeError` where there is none of this id."""
        return self._way.info(job_id)

    def list_jobs(self) -> list[JobDetails]:
        """All jobs, submitted or not, that the cluster remembers."""
        return self._way.all()

    def get_job_logs(self, job_id: str) -> str:
        """What a job has printed. Raises `RuntimeError` where there is none of this id."""
        return self._way.logs(job_id)

    async def tail_job_logs(self, job_id: str) -> AsyncIterator[str]:
        """What a job prints, until it ends. Raises `RuntimeError` where there is none of this id."""
        async for piece in self._way.tail(job_id):
            yield piece

    def delete_job(self, job_id: str) -> bool:
        """Has the cluster forget a job that has ended, and what it printed; returns True.

        Raises `RuntimeError` where it has not ended, or there is none.
        """
        return self._way.delete(job_id)


class _ByHttp:
    """Whoever answers over HTTP is asked."""

    def __init__(self, site: _job_http.Site) -> None:
        self._site = site
        self.address = site.address
        self._version = str(site.told("GET", "/api/version")["version"])

    def version(self) -> str:
        return self._version

    def submit(self, job: dict[str, Any]) -> str:
        if environment := job["runtime_env"]:
            job["runtime_env"] = _job_http.uploaded(self._site, environment)
        told = self._site.told("POST", "/api/jobs/", {name: value for name, value in job.items() if value is not None})
        return str(told["submission_id"])

    def stop(self, job_id: str) -> bool:
        return bool(self._site.told("POST", f"{_job(job_id)}/stop")["stopped"])

    def status(self, job_id: str) -> JobStatus:
        return self.info(job_id).status

    def info(self, job_id: str) -> JobDetails:
        return _details(self._site.told("GET", _job(job_id)))

    def all(self) -> list[JobDetails]:
        return [_details(row) for row in self._site.told("GET", "/api/jobs/")]

    def logs(self, job_id: str) -> str:
        return str(self._site.told("GET", f"{_job(job_id)}/logs")["logs"])

    def tail(self, job_id: str) -> AsyncIterator[str]:
        return self._site.tail(f"{_job(job_id)}/logs/tail")

    def delete(self, job_id: str) -> bool:
        return bool(self._site.told("DELETE", _job(job_id))["deleted"])


class _ByCommand:
    """The native command is run, which asks the daemon of a cluster of this machine."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._run("list")

    def version(self) -> str:
        return _API_VERSION

    def submit(self, job: dict[str, Any]) -> str:
        if job.pop("entrypoint_label_selector"):
            raise ValueError(
                "entrypoint_label_selector is available over HTTP only: name the dashboard's address, or a resource in "
                "entrypoint_resources"
            )
        entrypoint = job.pop("entrypoint")
        options = []
        for name, option in (
            ("runtime_env", "runtime-env-json"),
            ("metadata", "metadata-json"),
            ("entrypoint_resources", "entrypoint-resources"),
        ):
            if (value := job.pop(name)) is not None:
                options.append(f"--{option}={json.dumps(_packed(value) if name == 'runtime_env' else value)}")
        options += [f"--{name.replace('_', '-')}={value}" for name, value in job.items() if value is not None]
        told = self._run("submit", "--no-wait", *options, after=["--", entrypoint], wants_errors=True)
        return told.partition("Job ")[2].partition(" is submitted.")[0]

    def stop(self, job_id: str) -> bool:
        was_over = self.status(job_id).is_terminal()
        self._run("stop", "--no-wait", after=["--", job_id])
        return not was_over

    def status(self, job_id: str) -> JobStatus:
        return JobStatus(json.loads(self._run("status", "--json", after=["--", job_id]))["status"])

    def info(self, job_id: str) -> JobDetails:
        for job in self.all():
            if job_id in (job.submission_id, job.job_id):
                return job
        raise RuntimeError(f"Request failed with status code 404: there is no job {job_id!r}; list_jobs() names those there are")

    def all(self) -> list[JobDetails]:
        command = ["list", "jobs", "--format=json", "--detail", f"--limit={_JOBS_MAX}", f"--address={self.address}"]
        return [_details(row) for row in json.loads(_command(command))]

    def logs(self, job_id: str) -> str:
        return self._run("logs", after=["--", job_id])

    async def tail(self, job_id: str) -> AsyncIterator[str]:
        command = [str(_cli.native_binary()), "job", "logs", "--follow", f"--address={self.address}", "--", job_id]
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

    def delete(self, job_id: str) -> bool:
        self._run("delete", after=["--", job_id])
        return True

    def _run(self, order: str, *options: str, after: list[str] | None = None, wants_errors: bool = False) -> str:
        command = ["job", order, f"--address={self.address}", *options, *(after or [])]
        return _command(command, wants_errors=wants_errors)


def _way(
    given: str | None, headers: dict[str, Any] | None, cookies: dict[str, Any] | None, verify: str | bool
) -> _ByHttp | _ByCommand:
    """How the cluster is asked that this address means."""
    address = os.environ.get("RAY_API_SERVER_ADDRESS") or given
    said = os.environ.get("RAY_ADDRESS") or ""
    if said.startswith(_HTTP) and not os.environ.get("RAY_API_SERVER_ADDRESS"):
        address = said
    if address is not None and address.startswith(_HTTP):
        site = _job_http.Site(address, _job_http.headers(address, headers, cookies), verify)
        try:
            return _ByHttp(site)
        except ConnectionError as error:
            is_here = isinstance(error.__cause__, ConnectionRefusedError) and site.is_of_this_machine()
            if not is_here or headers or cookies:
                raise
    elif headers or cookies:
        raise ValueError("headers and cookies are for requests over HTTP: give an address such as http://127.0.0.1:8265")
    own = _address(given)
    try:
        return _ByCommand(own)
    except RuntimeError as error:
        raise ConnectionError(f"Failed to connect to Ray at address: {given or 'auto'}. {error}") from None


def _job(job_id: str) -> str:
    """The path of a job."""
    return f"/api/jobs/{urllib.parse.quote(job_id, safe='')}"


def _address(given: str | None) -> str:
    """What `--address` of the native command is to be."""
    address = given
    if address is None or address.startswith(_HTTP):
        address = os.environ.get("RAY_ADDRESS") or "auto"
    if address.startswith(_HTTP):
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


__all__ = ["DriverInfo", "JobDetails", "JobErrorType", "JobInfo", "JobStatus", "JobSubmissionClient", "JobType"]

__getattr__ = _missing.attributes(__name__)
