"""Working directories and modules that lie in storage which speaks S3."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from homes import Home, free_port
from ray.exceptions import RuntimeEnvSetupError
from s3 import BUCKET, S3Server, serving
from watching import wait_until

#: Of an archive at a URL the one folder at its top is left out, as in Ray.
_FILES = {"project/answer.py": "VALUE = 42\n", "project/data.txt": "here"}


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with serving(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as patch:
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            for name, text in _FILES.items():
                archive.writestr(name, text)
        server.put("project.zip", content.getvalue())
        for name, value in server.variables.items():
            patch.setenv(name, value)
        yield server


@ray.remote
def look() -> tuple[int, str]:
    import answer  # type: ignore[import-not-found]

    with open("data.txt") as file:
        return answer.VALUE, file.read()


@ray.remote
def imported() -> int:
    import answer

    return int(answer.VALUE)


def test_a_working_directory_is_fetched(s3: S3Server, two_cpus: None) -> None:
    environment = {"working_dir": f"s3://{BUCKET}/project.zip"}
    assert ray.get(look.options(runtime_env=environment).remote()) == (42, "here")


def test_modules_are_fetched(s3: S3Server, two_cpus: None) -> None:
    environment = {"py_modules": [f"s3://{BUCKET}/project.zip"]}
    assert ray.get(imported.options(runtime_env=environment).remote()) == 42


@pytest.mark.parametrize(
    ("environment", "kind", "said"),
    [
        ({"working_dir": f"s3://{BUCKET}/missing.zip"}, RuntimeEnvSetupError, "Look whether the bucket and the file are there"),
        ({"working_dir": f"s3://{BUCKET}/project"}, ValueError, "is to be a .zip file"),
        ({"py_modules": [f"s3://{BUCKET}/answer.py"]}, ValueError, "is to be a .zip or a .whl file"),
    ],
)
def test_what_is_not_there_is_an_error_that_names_it(
    s3: S3Server, two_cpus: None, environment: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said) as failure:
        look.options(runtime_env=environment).remote()
    assert f"s3://{BUCKET}/" in str(failure.value)


#: The program of a job: it lies in the archive's place as its tasks do.
_JOB = """
import answer, ray
ray.init(logging_level="ERROR")
@ray.remote
def look():
    import answer
    return answer.VALUE, open("data.txt").read()
print(answer.VALUE, open("data.txt").read(), ray.get(look.remote()))
"""


@pytest.fixture
def home(s3: S3Server, tmp_path: Path) -> Iterator[Home]:
    """A folder and a port for a cluster whose head has the storage's credentials."""
    made = Home(tmp_path)
    yield made
    made.oxiray("stop", "--force")


def start(home: Home, *options: str) -> None:
    started = home.oxiray("start", "--head", f"--port={home.port}", "--num-cpus=2", *options)
    assert started.returncode == 0, started.stderr


def submit(home: Home, name: str, *options: str) -> tuple[int, str, str]:
    """The status of `oxiray job submit --working-dir s3://…`, what the job printed, and what was said of it."""
    done = home.oxiray("job", "submit", "--working-dir", f"s3://{BUCKET}/{name}", *options, "--", "python", "-c", _JOB)
    return done.returncode, done.stdout, done.stderr


def test_a_submitted_job_runs_in_a_folder_from_storage(home: Home) -> None:
    port = free_port()
    start(home, f"--dashboard-port={port}")
    told = "42 here (42, 'here')\n"
    assert submit(home, "project.zip", "--submission-id=direct")[:2] == (0, told)
    # Who submits needs no credentials: the job's own processes fetch it.
    for name in [name for name in home.environment if name.startswith("AWS_")]:
        del home.environment[name]
    assert submit(home, "project.zip")[:2] == (0, told)
    wait_until(lambda: home.oxiray("dashboard", "url").returncode == 0)
    assert submit(home, "project.zip", f"--address=http://127.0.0.1:{port}")[:2] == (0, told)
    listed = json.loads(home.oxiray("job", "list", "--json").stdout)
    assert [one["status"] for one in listed] == ["SUCCEEDED"] * 3


def test_a_job_whose_folder_is_not_in_storage_fails_with_the_reason(home: Home) -> None:
    start(home)
    status, _, said = submit(home, "missing.zip", "--submission-id=missing")
    assert status == 1 and f"s3://{BUCKET}/missing.zip cannot be fetched" in said, said
    told = json.loads(home.oxiray("job", "status", "missing", "--json").stdout)
    assert told["status"] == "FAILED" and "Look whether the bucket and the file are there" in told["message"]
    status, _, said = submit(home, "project", "--submission-id=folder")
    assert status == 1 and "is to be a .zip file" in said


def test_a_job_without_credentials_fails_with_what_is_missing(home: Home) -> None:
    for name in [name for name in home.environment if name.startswith("AWS_")]:
        del home.environment[name]
    home.environment["AWS_EC2_METADATA_DISABLED"] = "true"
    start(home)
    status, _, said = submit(home, "project.zip")
    assert status == 1 and "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in said
