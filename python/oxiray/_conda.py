"""Where conda's environments lie: an existing one is named in a runtime environment by its name or its folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from oxiray.exceptions import RuntimeEnvSetupError

_SPECIFICATIONS = (".yml", ".yaml")


def is_existing(asked: object) -> bool:
    """Whether the field `conda` names an environment that was made already, rather than what to make."""
    return isinstance(asked, str) and not asked.endswith(_SPECIFICATIONS)


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
    program = os.environ.get("CONDA_EXE") or shutil.which("conda")
    if program:
        yield Path(program).resolve().parent.parent
    active = os.environ.get("CONDA_PREFIX")
    if active:
        folder = Path(active)
        yield folder.parent.parent if folder.parent.name == "envs" else folder
