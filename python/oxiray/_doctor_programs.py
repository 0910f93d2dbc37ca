"""Checks of `oxiray doctor`: whose commands `ray` and `oxiray` are in this shell, and the programs beside the native one.

Invariant: a command is read, not run; only what is a native `oxiray` is asked for its version.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from oxiray import _alias, _cli
from oxiray._doctor_findings import Finding, ok, output_of, warning
from oxiray._version import VERSION

#: The modules that the commands' scripts import, and what they are of.
_OWN_MODULES = {"ray": "oxiray_ray_alias.command", "oxiray": "oxiray._cli"}
_RAYS_MODULE = "ray.scripts.scripts"
#: As much of a script as pip and uv write.
_SCRIPT_BYTES = 4096
#: What the native program starts from the folder in which it lies, and what for.
COMPANIONS = {
    "oxiray-dashboard": "the dashboard with its jobs API, exported metrics, history and spans do not work without it",
    "oxiray-storage": "spilling to `s3://`, packages at `s3://` and history at `s3://` do not work without it",
}


@dataclass(frozen=True)
class Script:
    """A command on PATH.

    Attributes:
        path: Path. Where it lies.
        module: str. The module whose function it runs; nothing where it is no script of Python.
        interpreter: Path or None. What runs it.
        is_native: bool. Whether it is a program and no script.
    """

    path: Path
    module: str
    interpreter: Path | None
    is_native: bool


def read(path: Path) -> Script:
    """What a command is, by its beginning."""
    with path.open("rb") as file:
        begin = file.read(_SCRIPT_BYTES)
    if begin.startswith(b"\x7fELF"):
        return Script(path, "", None, is_native=True)
    text = begin.decode(errors="replace")
    imported = re.search(r"^\s*from (\S+) import \w+", text, re.MULTILINE)
    return Script(path, imported.group(1) if imported else "", _interpreter(text, path), is_native=False)


def _interpreter(text: str, path: Path) -> Path | None:
    """The interpreter of a script; pip and uv write a long path behind `exec`, and `env` finds one on PATH."""
    named = re.match(r"#!\s*(\S+/env)\s+(\S+)", text)
    if named:
        found = shutil.which(named.group(2))
        return Path(found) if found else None
    if long := re.match(r"#!/bin/sh\n'''exec' (.+) \"\$0\" \"\$@\"", text):
        written = long.group(1)
        # uv writes where an environment that can be moved has it: beside the script.
        is_beside = written.startswith('"$(dirname')
        name = shlex.split(written.rpartition('"/')[2] if is_beside else written)[0]
        return path.resolve().parent / name if is_beside else Path(name)
    short = re.match(r"#!\s*(\S+)", text)
    return Path(short.group(1)) if short else None


def on_path() -> Iterator[Finding]:
    """Whose the commands are that this shell runs."""
    yield _of_oxiray(_found("oxiray"))
    yield _of_ray(_found("ray"))


def _found(name: str) -> Script | None:
    path = shutil.which(name)
    try:
        return read(Path(path)) if path else None
    except OSError:
        return Script(Path(path or name), "", None, is_native=False)


def _is_shim(script: Script) -> bool:
    """Whether a version manager (pyenv, asdf, mise) chooses the environment of the command when it runs."""
    return not script.is_native and not script.module and script.path.parent.name == "shims"


def _is_this_environment(script: Script) -> bool:
    """Whether the script runs on this interpreter: environments differ by the folder of theirs, which may be links to one."""
    if script.interpreter is None:
        return False
    return script.interpreter.parent.resolve() == Path(sys.executable).parent.resolve()


def _own(name: str) -> Path | None:
    """The command in the folder of this interpreter's commands."""
    path = Path(sysconfig.get_path("scripts")) / name
    return path if path.is_file() else None


def _first_on_path(name: str) -> str:
    own = _own(name)
    if own is None:
        return f"Install Oxiray in the environment that you use, or put the folder of the environment's `{name}` first on PATH."
    return f"Activate this interpreter's environment, or put its folder first on PATH (`export PATH={own.parent}:$PATH`)."


def _of_oxiray(script: Script | None) -> Finding:
    check = "command oxiray"
    if script is None:
        own = _own("oxiray")
        return ok(check, f"none on PATH; {own or f'{sys.executable} -m oxiray._cli'} is this interpreter's")
    if script.is_native:
        return _of_program(check, script.path)
    if _is_shim(script):
        return ok(check, f"{script.path} is a shim: the version manager chooses whose command it runs")
    if script.module != _OWN_MODULES["oxiray"]:
        return warning(check, f"{script.path} is not the command of the Python package", _first_on_path("oxiray"))
    if not _is_this_environment(script):
        return warning(check, f"{script.path} is of another environment than this interpreter: {script.interpreter}", _first_on_path("oxiray"))
    return ok(check, f"{script.path} is this interpreter's")


def _of_program(check: str, path: Path) -> Finding:
    """A native program on PATH: without the Python package's commands, and perhaps of another version."""
    _, said = output_of(path, "--version")
    version = re.match(r"oxiray (\S+)", said)
    if version is None or version.group(1) != VERSION:
        found = f"{path} is a program of version {version.group(1) if version else 'unknown'}, beside {VERSION} of the Python package"
        return warning(check, found, _first_on_path("oxiray"))
    return ok(check, f"{path} is the native program, which has not the commands of the Python package")


def _of_ray(script: Script | None) -> Finding:
    check = "command ray"
    if script is None:
        return ok(check, "none on PATH; commands of `ray` are those of `oxiray`")
    if _is_shim(script):
        return ok(check, f"{script.path} is a shim: the version manager chooses whose command it runs")
    if script.module == _RAYS_MODULE:
        found = f"{script.path} is Ray's own ({script.interpreter}): it starts and finds clusters of Ray, and none of Oxiray"
        if _alias.is_installed() and _own("ray"):
            return warning(check, found, f"Write `oxiray` in place of `ray`. {_first_on_path('ray')}")
        advice = "Write `oxiray` in place of `ray`, or install the alias in this environment (`pip install oxiray-ray-alias`)."
        return warning(check, found, advice)
    if script.module != _OWN_MODULES["ray"]:
        return warning(check, f"{script.path} is neither Oxiray's nor Ray's", "Write `oxiray` in place of `ray`, or put it behind on PATH.")
    if not _is_this_environment(script):
        found = f"{script.path} is Oxiray's, of another environment than this interpreter: {script.interpreter}"
        return warning(check, found, _first_on_path("ray"))
    if not _alias.is_installed():
        advice = "`pip uninstall ray oxiray-ray-alias`, then `oxiray ray install`; `oxiray` works in place of `ray` meanwhile."
        return warning(check, f"{script.path} is Oxiray's, and fails: `import ray` is not Oxiray here", advice)
    return ok(check, f"{script.path} is Oxiray's, and this interpreter's")


def companions() -> Iterator[Finding]:
    """The programs that the native one starts from its own folder."""
    folder = _cli.native_binary().resolve().parent
    for name, without in COMPANIONS.items():
        path = folder / name
        status, said = output_of(path, "--version")
        version = re.match(rf"{name} (\S+)", said)
        advice = f"Reinstall the wheel `oxiray`, or put {name} of version {VERSION} beside the program."
        if not path.is_file():
            yield warning(name, f"{path} is missing: {without}", advice)
        elif status != 0 or version is None:
            yield warning(name, f"{path} cannot be run: {said or f'status {status}'}; {without}", advice)
        elif version.group(1) != VERSION:
            yield warning(name, f"{path} is of version {version.group(1)}, beside {VERSION} of the Python package", advice)
        else:
            yield ok(name, f"{version.group(1)}, {path}")
