"""Environments of conda: an existing one is named by its name or its folder, a new one is described as conda describes it.

A description is the content of an `environment.yml`, as a dictionary.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oxiray.exceptions import RuntimeEnvSetupError

_SPECIFICATIONS = (".yml", ".yaml")


def checked(asked: Mapping[str, Any] | str) -> dict[str, Any] | str:
    """The name or folder of an existing environment as it is; the description of a new one, also where a file has it.

    Raises `ValueError` where the file does not exist or is no description, `RuntimeEnvSetupError` where PyYAML, which reads
    it, is not installed.
    """
    if isinstance(asked, Mapping):
        return dict(asked)
    file = Path(asked)
    if file.suffix not in _SPECIFICATIONS:
        return asked
    if not file.is_file():
        raise ValueError(f"Can't find conda YAML file {file}: runtime_env['conda'] names it; correct the path")
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError:
        raise RuntimeEnvSetupError(
            f"runtime_env['conda'] is the file {file}, and PyYAML is needed to read it: install it with `pip install pyyaml`, "
            "or give the content of the file as a dictionary"
        ) from None
    try:
        read = yaml.safe_load(file.read_text())
    except yaml.YAMLError as error:
        raise ValueError(f"Failed to read conda file {file}: {error}") from None
    if not isinstance(read, dict):
        raise ValueError(f"Failed to read conda file {file}: it holds no mapping with `dependencies`, but {read!r}")
    return read


def completed(description: Mapping[str, Any]) -> dict[str, Any]:
    """A description with the driver's version of Python added, as Ray adds it; with pip where pip is to install something.

    Where the description asks for another version of Python, conda says that the two do not fit.
    """
    dependencies = list(description.get("dependencies") or [])
    dependencies.append(f"python={sys.version_info.major}.{sys.version_info.minor}")
    if any(isinstance(one, Mapping) for one in dependencies) and "pip" not in dependencies:
        dependencies.append("pip")
    return {**description, "dependencies": dependencies}


def interpreter_of(environment: str) -> str:
    """The interpreter of an environment, given by its name or its folder. Raises `RuntimeEnvSetupError` where there is none."""
    tried = []
    for folder in _folders(environment):
        interpreter = folder / "bin" / "python"
        if interpreter.is_file():
            return str(interpreter)
        tried.append(str(folder))
    looked = f"looked for in {', '.join(tried)}" if tried else "and no conda is installed"
    raise RuntimeEnvSetupError(
        f"runtime_env['conda'] is {environment!r}, which is no environment of conda on this machine, {looked}: make it with "
        "`conda create`, with Oxiray in it, or name its folder"
    )


def _folders(environment: str) -> Iterator[Path]:
    if os.sep in environment:
        yield Path(environment).expanduser()
        return
    for base in _bases():
        yield base if environment == "base" else base / "envs" / environment
    for variable in ("CONDA_ENVS_PATH", "CONDA_ENVS_DIRS"):
        for folder in filter(None, os.environ.get(variable, "").split(os.pathsep)):
            yield Path(folder).expanduser() / environment
    # Conda lists every environment there, wherever it was made.
    listed = Path.home() / ".conda" / "environments.txt"
    if listed.is_file():
        for line in listed.read_text().splitlines():
            if Path(line).name == environment:
                yield Path(line)


def _bases() -> Iterator[Path]:
    """Where conda itself is installed."""
    import shutil  # it takes 1.5 ms, and every worker imports this module

    program = os.environ.get("CONDA_EXE") or shutil.which("conda")
    if program:
        yield Path(program).resolve().parent.parent
    active = os.environ.get("CONDA_PREFIX")
    if active:
        folder = Path(active)
        yield folder.parent.parent if folder.parent.name == "envs" else folder
