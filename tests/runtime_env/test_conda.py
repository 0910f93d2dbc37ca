"""Environments that conda makes, with a stand-in for conda that takes its command line and makes a virtual environment."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
from oxiray.runtime_env import RuntimeEnv
from ray.exceptions import RuntimeEnvSetupError

pytestmark = pytest.mark.timeout(100)
#: Fails where a package is called `impossible`; keeps what it was told beside the environment's interpreter.
STAND_IN = """#!{python}
import json, pathlib, subprocess, sys
words = sys.argv[1:]
verb = ["create", "--yes"] if pathlib.Path(sys.argv[0]).name == "micromamba" else ["env", "create"]
assert words[:2] == verb and words[2] == "--prefix" and words[4] == "--file" and words[5].endswith(".yml"), words
prefix, told = pathlib.Path(words[3]), json.loads(pathlib.Path(words[5]).read_text())
assert not prefix.exists()
if "impossible" in told["dependencies"]:
    sys.exit("PackagesNotFoundError: impossible")
subprocess.run([{python!r}, "-m", "venv", "--without-pip", str(prefix)], check=True)
(prefix / "told.json").write_text(json.dumps(told))
for library in prefix.glob("lib/python*/site-packages"):
    (library / "numpy.py").write_text("")
"""
PYTHON = f"python={sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def conda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a stand-in of a name into `PATH`, from which whoever starts a cluster hands it on."""

    def install(name: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(STAND_IN.format(python=sys.executable))
        (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    monkeypatch.delenv("CONDA_EXE", raising=False)
    return install


@ray.remote
def told() -> dict[str, Any]:
    import cloudpickle  # what workers need is there

    assert cloudpickle
    return dict(json.loads(Path(sys.prefix, "told.json").read_text()))


@ray.remote
def numpy_is_of_conda() -> bool:
    import numpy

    return numpy.__file__.startswith(sys.prefix)


@pytest.mark.parametrize("name", ["conda", "mamba", "micromamba"])
def test_conda_makes_what_a_dictionary_describes(
    cluster: Callable[..., Any], conda: Callable[[str], None], installed: Callable[[], list[Path]], name: str
) -> None:
    conda(name)
    cluster()
    before = len(installed())
    asked = {"conda": {"channels": [f"of-{name}"], "dependencies": ["numpy", {"pip": ["tinyone"]}]}}
    found = ray.get([told.options(runtime_env=asked).remote() for _ in range(4)], timeout=90)
    dependencies = ["numpy", {"pip": ["tinyone"]}, PYTHON, "pip"]
    assert found == [{"channels": [f"of-{name}"], "dependencies": dependencies}] * 4
    assert len(installed()) == before + 1
    assert ray.get(numpy_is_of_conda.options(runtime_env=asked).remote(), timeout=60), "the driver's comes after it"


def test_conda_makes_what_a_file_describes(cluster: Callable[..., Any], conda: Callable[[str], None], tmp_path: Path) -> None:
    conda("conda")
    file = tmp_path / "environment.yml"
    file.write_text("name: ignored\ndependencies:\n  - scipy\n")
    assert RuntimeEnv(conda=str(file))["conda"] == {"name": "ignored", "dependencies": ["scipy"]}
    cluster(runtime_env={"conda": str(file)})
    assert ray.get(told.remote(), timeout=90)["dependencies"] == ["scipy", PYTHON]


def test_what_conda_says_is_in_the_error(cluster: Callable[..., Any], conda: Callable[[str], None]) -> None:
    conda("conda")
    cluster()
    with pytest.raises(RuntimeEnvSetupError, match="PackagesNotFoundError: impossible"):
        ray.get(told.options(runtime_env={"conda": {"dependencies": ["impossible"]}}).remote(), timeout=90)


def test_a_machine_without_conda_fails_the_task(
    cluster: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CONDA_EXE", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    cluster(runtime_env={"conda": {"dependencies": ["anything"]}})
    with pytest.raises(RuntimeEnvSetupError, match="neither conda nor mamba nor micromamba is in PATH"):
        ray.get(told.remote(), timeout=90)


def test_a_file_that_describes_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Can't find conda YAML file"):
        RuntimeEnv(conda=str(tmp_path / "missing.yml"))
    for text in ("- a\n- b\n", "a: [\n"):
        (tmp_path / "wrong.yaml").write_text(text)
        with pytest.raises(ValueError, match="Failed to read conda file"):
            RuntimeEnv(conda=str(tmp_path / "wrong.yaml"))
