"""Working directories and modules that lie in storage which speaks S3."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from ray.exceptions import RuntimeEnvSetupError
from s3 import BUCKET, S3Server, serving

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
