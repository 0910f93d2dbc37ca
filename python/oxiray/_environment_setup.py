"""The process that makes what an environment needs before workers can start in it.

The daemon starts it with the driver's interpreter, an order on standard input, and a result file as standard
output. Packages are unpacked into the session's folder; requirements are installed into an environment of the
user's cache, on top of the driver's interpreter and packages; conda makes an environment with an interpreter of its own.

Invariants:
1. It ends with the daemon, and so does the installer that it runs.
2. An environment that was not finished is never used: it is marked last, under a lock.
3. Nothing is imported or run from the working directory, in which others may write (`_python`, `_program`).
"""

from __future__ import annotations

import collections
import fcntl
import importlib.util
import json
import os
import select
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from oxiray import _core, _environment_packages as packages
from oxiray._environment import SCHEME, WORKING_DIR_VARIABLE

#: How much of an installer's output an error quotes.
_LINES_QUOTED = 30
_LINE_CHARACTERS = 500
#: How much of it is kept in the log, in bytes.
_LOG_BYTES_MAX = 4 << 20
#: How long a package stays unpacked at least after it was asked for, in seconds.
_UNPACKED_KEPT_S = 900
#: What every interpreter that runs workers must be able to do.
_PROBE = "import oxiray._core, oxiray._worker, cloudpickle"


def _python(python: Path | str, program: str) -> list[str]:
    """The command that runs a program on an interpreter, which would else import from the working directory first."""
    return [str(python), "-c", f"import sys; sys.path[:] = filter(None, sys.path); {program}"]


def _module(python: Path | str, name: str) -> list[str]:
    """The command that runs a module. With `-m` Python looks for it in the working directory."""
    return _python(python, f"import runpy; runpy.run_module({name!r}, run_name='__main__', alter_sys=True)")


def _program(name: str) -> str | None:
    """Where a program is; an entry of `PATH` that is relative or empty would mean the working directory."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return shutil.which(name, path=os.pathsep.join(filter(os.path.isabs, folders)) or os.defpath)


def _library(python: Path) -> str:
    """Where an interpreter's packages lie."""
    command = _python(python, "import sysconfig; print(sysconfig.get_path('purelib'))")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _conda_program() -> str:
    """The program that makes environments of conda. Raises `SetupFailed` where none is installed."""
    named = os.environ.get("CONDA_EXE", "")
    if os.path.isabs(named) and os.access(named, os.X_OK):
        return named
    for name in ("conda", "mamba", "micromamba"):
        if found := _program(name):
            return found
    raise SetupFailed(
        "runtime_env['conda'] describes an environment to be made, and neither conda nor mamba nor micromamba is in PATH on this "
        "machine: install one of them, name conda's program in CONDA_EXE, or list the packages under 'pip' or 'uv'"
    )


class SetupFailed(Exception):
    """There will be no such environment; says why."""


def main() -> None:
    """Carries out one order."""
    order = json.load(sys.stdin)
    threading.Thread(target=_end_with, args=(order["daemon"],), daemon=True).start()
    try:
        outcome: dict[str, Any] = {"command": _Setup(order).make()}
    except SetupFailed as failed:
        outcome = {"error": str(failed)}
    except Exception as error:
        traceback.print_exc()
        outcome = {"error": f"it could not be prepared: {type(error).__name__}: {error}"}
    with open(1, "w", closefd=False) as result:
        json.dump(outcome, result)


#: The process groups of installers that run.
_groups: set[int] = set()


def _end_with(daemon: int) -> NoReturn:
    """Waits for the daemon's end, then ends the installers with everything that they started, and this process."""
    try:
        watched = os.pidfd_open(daemon)
        if os.getppid() == daemon:
            select.select([watched], [], [])
    except OSError:
        pass  # it is gone already
    for group in list(_groups):
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            continue
    os._exit(1)


class _Setup:
    def __init__(self, order: dict[str, Any]) -> None:
        self.specification = json.loads(order["specification"])
        self.session = Path(order["session"])
        self.cache = Path(order["cache"])
        self.lock = order["lock"]
        self.log = Path(order["logs"]) / f"runtime_env_setup-{order['number']}.log"
        self.log_bytes = 0
        self.in_use = order["in_use"]

    def make(self) -> list[str]:
        """Makes everything; returns the command that starts interpreters in the environment, empty for the driver's."""
        for name, zip_file in self.specification.get("packages", []):
            # Another machine's cache may be elsewhere: what came from there lies in this one's.
            given = Path(zip_file)
            self._unpack(name, given if given.is_file() else packages.zip_of(name, self.cache))
        self._evict_unpacked()
        if command := self.specification.get("command"):
            return self._checked_command(command)
        if install := self.specification.get("install"):
            return [str(self._environment(install) / "bin" / "python")]
        return []

    def _unpack(self, name: str, zip_file: Path) -> None:
        if not zip_file.is_file():
            raise SetupFailed(
                f"its package {name} is on no machine of the cluster ({zip_file} is missing): it was evicted, or its program's "
                "machine has left"
            )
        try:
            packages.unpack(zip_file, packages.unpacked(self.session, name), strips_folder=name.endswith("s"))
        except (OSError, ValueError) as error:
            raise SetupFailed(f"its package {name} cannot be unpacked: {error}") from None

    def _evict_unpacked(self) -> None:
        """Removes unpacked packages of jobs that are over, longest unused first, while they take too much."""
        kept = {name for text in self.in_use for name, _ in json.loads(text).get("packages", [])}
        kept |= {name for name, _ in self.specification.get("packages", [])}
        found = sorted((path.stat().st_mtime, path) for path in (self.session / "packages").glob("*"))
        total = sum(_core.tree_bytes(path) for _, path in found)
        for used, path in found:
            # One that was used just now may be somebody's who is not counted yet.
            if total <= _core.cache_bytes_max() or path.name in kept or time.time() - used < _UNPACKED_KEPT_S:
                continue
            gone = path.with_name(f"{path.name}.{os.getpid()}.gone")
            total -= _core.tree_bytes(path)
            path.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def _checked_command(self, command: list[str]) -> list[str]:
        found = _program(command[0])
        if found is None:
            raise SetupFailed(
                f"runtime_env['py_executable'] is {command[0]!r}, which is no program that can be started: name an interpreter"
            )
        # What starts interpreters knows modules and scripts; only an interpreter itself is sure to know `-c`.
        if len(command) == 1:
            self._probe(Path(found), "runtime_env['py_executable']")
        return [found, *command[1:]]

    def _environment(self, install: dict[str, Any]) -> Path:
        made = _core.environments_folder(self.cache) / install["name"]
        while True:
            fcntl.flock(self.lock, fcntl.LOCK_SH)
            if _core.environment_is_whole(made):
                break
            fcntl.flock(self.lock, fcntl.LOCK_EX)
            if not _core.environment_is_whole(made):
                shutil.rmtree(made, ignore_errors=True)
                try:
                    self._build(made, install)
                except BaseException:
                    shutil.rmtree(made, ignore_errors=True)
                    raise
                _core.environment_is_made(made)
        packages.touch(made / "complete")
        # The lock of this one is held: it stays.
        _core.cache_evict(self.cache, _core.cache_bytes_max())
        return made

    def _build(self, made: Path, install: dict[str, Any]) -> None:
        if install["kind"] == "conda":
            self._build_by_conda(made, install)
        else:
            self._build_on_the_driver(made, install)
        self._probe(made / "bin" / "python", f"the environment of runtime_env[{install['kind']!r}]")

    def _build_by_conda(self, made: Path, install: dict[str, Any]) -> None:
        conda = _conda_program()
        with tempfile.TemporaryDirectory(prefix="conda-") as folder:
            file = Path(folder, "environment.yml")
            # Every JSON document is a YAML document.
            file.write_text(json.dumps(install["description"]))
            create = ["create", "--yes"] if Path(conda).name == "micromamba" else ["env", "create"]
            self._run("conda", [conda, *create, "--prefix", str(made), "--file", str(file)], install)
        python = made / "bin" / "python"
        if not python.exists():
            raise SetupFailed(f"conda made an environment without Python: {python} does not exist")
        # Oxiray and what it needs, and none of the driver's other packages, which may be for another version of Python.
        front = made / "oxiray-front"
        front.mkdir()
        for name in ("oxiray", "cloudpickle", "ray", "oxiray_ray_alias", "oxiray_libraries"):
            found = importlib.util.find_spec(name)
            if found is not None and found.origin is not None:
                (front / name).symlink_to(Path(found.origin).parent)
        Path(_library(python), "_oxiray_front.pth").write_text(f"{front}\n")

    def _build_on_the_driver(self, made: Path, install: dict[str, Any]) -> None:
        self._run("making a virtual environment", [*_module(sys.executable, "venv"), "--without-pip", str(made)])
        python = made / "bin" / "python"
        library = _library(python)
        # Behind the environment's own packages come the driver's, with what their .pth files add. Those of the interpreter
        # that the driver's own virtual environment was made with are among them only where the driver sees them too.
        folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
        folders.append(str(Path(_core.__file__).parent.parent))
        lines = [f"import site; site.addsitedir({folder!r})" for folder in dict.fromkeys(folders) if os.path.isdir(folder)]
        Path(library, "_oxiray_driver.pth").write_text("\n".join(lines) + "\n")
        requirements = made / "requirements.txt"
        requirements.write_text("\n".join(install["packages"]) + "\n")
        requirements.chmod(0o600)
        try:
            if install["kind"] == "pip":
                self._pip(python, requirements, install)
            else:
                self._uv(python, requirements, install)
        finally:
            requirements.unlink()

    def _pip(self, python: Path, requirements: Path, install: dict[str, Any]) -> None:
        options = install.get("pip_install_options", ["--disable-pip-version-check"])
        self._ensure_pip(python)
        pip = _module(python, "pip")
        if version := install.get("pip_version"):
            self._run("installing pip", [*pip, "install", *options, f"pip{version}"], install)
        self._run("pip", [*pip, "install", *options, "-r", str(requirements)], install)
        if install.get("pip_check"):
            self._run("pip check", [*pip, "check"], install)

    def _uv(self, python: Path, requirements: Path, install: dict[str, Any]) -> None:
        uv = self._find_uv(python, install)
        options = install.get("uv_pip_install_options", [])
        # The nearest uv.toml above the working directory may be anybody's: that of /tmp, for a session that lies there.
        target = ["--project", "/", "--python", str(python)]
        self._run("uv", [uv, "pip", "install", *target, *options, "-r", str(requirements)], install)
        if install.get("uv_check"):
            self._run("uv pip check", [uv, "pip", "check", *target], install)

    def _find_uv(self, python: Path, install: dict[str, Any]) -> str:
        """The program `uv`: the driver's, the machine's, or one that is installed for this."""
        version = install.get("uv_version")
        if not version:
            beside = Path(sys.executable).with_name("uv")
            found = str(beside) if os.access(beside, os.X_OK) else _program("uv")
            if found:
                return found
        self._ensure_pip(python)
        self._run("installing uv", [*_module(python, "pip"), "install", "--disable-pip-version-check", f"uv{version or ''}"], install)
        return str(python.with_name("uv"))

    def _ensure_pip(self, python: Path) -> None:
        if subprocess.run([*_module(python, "pip"), "--version"], capture_output=True, check=False).returncode != 0:
            self._run("bringing pip along", [*_module(python, "ensurepip"), "--default-pip"])

    def _probe(self, python: Path, what: str) -> None:
        done = subprocess.run(_python(python, _PROBE), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SetupFailed(
                f"{what} cannot run workers: `{python} -c '{_PROBE}'` says {_tail(done.stderr.splitlines())}. It needs "
                "Oxiray and cloudpickle, and the packages that it installs must leave these whole"
            )

    def _run(self, what: str, command: list[str], install: dict[str, Any] | None = None) -> None:
        """Runs an installer; raises `SetupFailed` with what it said last."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith("OXIRAY_")}
        variables.update((install or {}).get("variables", {}))
        directory = (install or {}).get("directory") or str(self.session)
        if directory.startswith(SCHEME):
            directory = str(packages.unpacked(self.session, directory.removeprefix(SCHEME)))
            variables[WORKING_DIR_VARIABLE] = directory
        last: collections.deque[str] = collections.deque(maxlen=_LINES_QUOTED)
        with subprocess.Popen(
            command, cwd=directory if os.path.isdir(directory) else self.session, env=variables, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
            start_new_session=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            _groups.add(process.pid)
            for line in process.stdout:
                last.append(line.rstrip()[:_LINE_CHARACTERS])
                self._note(line)
        _groups.discard(process.pid)
        if process.returncode != 0:
            raise SetupFailed(
                f"{what} failed with status {process.returncode}: {_tail(list(last))}\nThe whole output is in {self.log}"
            )

    def _note(self, line: str) -> None:
        if self.log_bytes < _LOG_BYTES_MAX:
            self.log_bytes += len(line)
            descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with open(descriptor, "a") as log:
                log.write(line)


def _tail(lines: list[str]) -> str:
    return "\n".join(line for line in lines[-_LINES_QUOTED:] if line.strip()) or "nothing"
