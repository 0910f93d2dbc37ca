"""From what a program says of a runtime environment to what the daemon and its workers are told.

Two forms of an environment: *asked*, as the program wrote it, with folders and functions of this process;
and *settled*, which means the same in any process: content is in packages, functions are pickled, everything
is plain JSON. Inheritance is between settled ones.

Invariants:
1. A settled environment is told whole: what it inherits is in it.
2. No value of a variable is ever part of a message, a log or a name.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import site
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from oxiray import _conda, _pickling, runtime_env as environments
from oxiray.exceptions import RuntimeEnvSetupError

#: What names a package in a runtime environment.
SCHEME = "package://"
#: A pickled hook larger than this is refused, in bytes: it carries data.
_HOOK_BYTES_LIMIT = 32 << 10
#: Variables of an environment that installers obey; only these are told to them.
#: What environments of an earlier layout are not taken for: 2 sees the driver's packages, and no others.
_LAYOUT = 2
_INSTALLER_PREFIXES = ("PIP_", "UV_", "CONDA_", "MAMBA_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
#: Where requirements find the working directory while they are installed, as in Ray.
WORKING_DIR_VARIABLE = "RAY_RUNTIME_ENV_CREATE_WORKING_DIR"
#: The scheme that is fetched from, and those that Ray downloads from besides.
_STORED = "s3"
_REMOTE = ("http", "https", "gs", "azure", "abfss", "hdfs", "gcs")

#: The package of each URL that was fetched.
_fetched: dict[str, str] = {}


def settled(asked: Mapping[str, Any] | None) -> dict[str, Any]:
    """The environment in a form that means the same everywhere. Ships what it names."""
    asked = dict(asked or {})
    refuse_unavailable(asked)
    result = {name: value for name, value in asked.items() if value not in (None, [], {}) or name == "config" or (name == "preload" and value is not None)}
    if "working_dir" in result:
        result["working_dir"] = _working_dir(str(result["working_dir"]), list(asked.get("excludes") or []))
    if "py_modules" in result:
        result["py_modules"] = [_module(one, list(asked.get("excludes") or [])) for one in result["py_modules"]]
    if "worker_process_setup_hook" in result:
        result["worker_process_setup_hook"] = _hook(result["worker_process_setup_hook"])
    for name in ("pip", "uv", "conda"):
        if name in result:
            checked = environments.checked_field(name, result[name])
            if checked is None:
                del result[name]
            else:
                result[name] = checked
    if isinstance(result.get("conda"), str):
        result["py_executable"] = shlex.quote(_conda.interpreter_of(result["conda"]))
    return result


def refuse_unavailable(asked: Mapping[str, Any]) -> None:
    """Raises `RuntimeEnvSetupError` for fields that Oxiray cannot provide."""
    for name in environments.unsupported_fields(asked):
        raise RuntimeEnvSetupError(
            f"runtime_env[{name!r}] is not available in this version of Oxiray: {environments.ALTERNATIVES[name]}"
        )


def public(settled_environment: Mapping[str, Any]) -> dict[str, Any]:
    """The environment as a program is shown it: a hook by its name."""
    shown = dict(settled_environment)
    if isinstance(hook := shown.get("worker_process_setup_hook"), dict):
        shown["worker_process_setup_hook"] = hook["name"]
    return shown


def as_json(environment: Mapping[str, Any]) -> str:
    """What a program sees of a runtime environment, as JSON."""
    return json.dumps(public(environment), sort_keys=True, default=repr)


def described(environment: Mapping[str, Any], interpreter: str, import_path: list[str], directory: str, made_of: Any) -> dict[str, Any]:
    """What the daemon is told of a settled environment; `interpreter` is the driver's, and so are the path and the directory.

    `made_of` is the function or the class that is to run there, or None.
    """
    config = environments.RuntimeEnvConfig.parse_and_validate_runtime_env_config(environment.get("config") or {})
    fields = {name: value for name, value in environment.items() if name not in ("env_vars", "config")}
    variables = dict(environment.get("env_vars") or {})
    own_packages = packages_of(environment)
    install = _install(environment, interpreter, variables, directory)
    command = shlex.split(environment.get("py_executable") or "")
    preparation: dict[str, Any] = {}
    if own_packages:
        from oxiray import _environment_packages as packages

        preparation["packages"] = [(name, str(packages.zip_of(name))) for name in own_packages]
    if install:
        preparation["install"] = install
    if command:
        preparation["command"] = command
    timeout = config["setup_timeout_seconds"]
    asked = environment.get("preload")
    # Another interpreter may lack what the libraries need.
    preload = list(asked or []) if asked is not None or command else _preloaded_by_itself(made_of)
    return {
        "variables": variables,
        "fields": json.dumps(fields, sort_keys=True, default=repr) if fields else "",
        "preparation": json.dumps(preparation, sort_keys=True) if preparation else "",
        "cached": f"environments/{install['name']}" if install else "",
        "preload": preload,
        "preload_path": [*(SCHEME + name for name in own_packages), *import_path] if preload else [],
        "setup_timeout_s": max(timeout, 0),
        "eager": bool(config["eager_install"]),
        "native": False,
        "isolation": environment.get("device_isolation") or "",
    }


def _preloaded_by_itself(made_of: Any) -> list[str]:
    """Modules of Ray's libraries for what is theirs. Most programs have none, and do not look for where the libraries are."""
    if not any((getattr(one, "__module__", None) or "").startswith("ray.") for one in getattr(made_of, "__mro__", (made_of,))):
        return []
    from oxiray._libraries import loading

    return loading.preloaded(made_of)


def packages_of(environment: Mapping[str, Any]) -> list[str]:
    """The names of an environment's packages in the order in which they are searched."""
    named = [environment.get("working_dir"), *(environment.get("py_modules") or [])]
    return [one.removeprefix(SCHEME) for one in named if one]


def _install(
    environment: Mapping[str, Any], interpreter: str, variables: Mapping[str, str], directory: str
) -> dict[str, Any] | None:
    kind = next((name for name in ("pip", "uv", "conda") if isinstance(environment.get(name), Mapping)), None)
    if kind is None:
        return None
    asked = environment[kind]
    told = {name: value for name, value in variables.items() if name.startswith(_INSTALLER_PREFIXES)}
    install: dict[str, Any] = {"kind": kind, "variables": told}
    if kind == "conda":
        install["description"] = _conda.completed(asked)
    else:
        install.update(asked)
    # Relative paths mean the working directory, or the driver's own where there is none.
    if kind == "conda" or _names_a_path(kind, asked):
        install["directory"] = environment.get("working_dir") or directory
    import hashlib  # it takes 2 ms, and every worker imports this module

    identity = json.dumps([_LAYOUT, install, interpreter, sys.version], sort_keys=True)
    install["name"] = hashlib.sha256(identity.encode()).hexdigest()[:32]
    return install


def _names_a_path(kind: str, asked: Mapping[str, Any]) -> bool:
    """Whether what pip or uv is to install, or how, may depend on the folder that it runs in."""
    lines = [*asked["packages"], *(asked.get(f"{kind}_install_options") or asked.get("uv_pip_install_options") or [])]
    return any("/" in line or line.startswith((".", "-")) or WORKING_DIR_VARIABLE in line for line in lines)


def _scheme(text: str) -> str:
    scheme, colon, _ = text.partition("://")
    return scheme if colon else ""


def _local(text: str, field: str) -> tuple[Path, bool]:
    """The path that a local name or URI means, and whether it was a URI. Raises where it is no local one."""
    scheme = _scheme(text)
    if scheme == "file":
        return Path(text.removeprefix("file://")), True
    if scheme:
        kind = "a place that Ray downloads from" if scheme in _REMOTE else "no scheme that is known"
        raise ValueError(
            f"runtime_env[{field!r}] is {text!r}, and {scheme}:// is {kind}; this version of Oxiray takes local folders "
            "and files, and s3://: download it first, and name what was downloaded"
        )
    return Path(text), False


def _stored(text: str, field: str) -> str:
    """The package of an archive that lies in storage, which is fetched once: Ray, too, takes what is at a URL as it was."""
    import tempfile  # it is needed for this alone

    from oxiray import _environment_packages as packages, _storage

    known = _fetched.get(text)
    if known is not None and packages.zip_of(known).is_file():
        return known
    suffix = Path(text).suffix
    wanted = (".zip",) if field == "working_dir" else (".zip", ".whl")
    if suffix not in wanted:
        raise ValueError(f"runtime_env[{field!r}] is {text!r}: at a URL it is to be a {' or a '.join(wanted)} file")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / text.rpartition("/")[2]
        try:
            _storage.fetch(text, path)
        except _storage.StorageError as error:
            raise RuntimeEnvSetupError(f"runtime_env[{field!r}]: {error}") from error
        _fetched[text] = packages.ship_archive(path, strips_folder=suffix == ".zip")
    return _fetched[text]


def _known_package(text: str, field: str) -> str:
    from oxiray import _environment_packages as packages

    name = text.removeprefix(SCHEME)
    if not name.isalnum() or not packages.zip_of(name).is_file():
        raise ValueError(
            f"runtime_env[{field!r}] is {text!r}, and there is no such package on this machine: name the folder it came from"
        )
    return text


def _working_dir(text: str, excludes: list[str]) -> str:
    from oxiray import _environment_packages as packages

    if text.startswith(SCHEME):
        return _known_package(text, "working_dir")
    if _scheme(text) == _STORED:
        return SCHEME + _stored(text, "working_dir")
    path, is_uri = _local(text, "working_dir")
    if path.is_dir():
        return SCHEME + packages.ship_folder(path, [*packages.default_excludes(), *excludes])
    if not path.exists():
        raise ValueError(f"runtime_env['working_dir'] is {text!r}, but there is no such folder or file: correct the path")
    if path.suffix != ".zip":
        raise ValueError(
            f"runtime_env['working_dir'] is {text!r}, which is neither a folder nor a .zip file: name one of these"
        )
    return SCHEME + packages.ship_archive(path, strips_folder=is_uri)


def _module(module: Any, excludes: list[str]) -> str:
    from oxiray import _environment_packages as packages

    if isinstance(module, ModuleType):
        text = _path_of(module)
    elif isinstance(module, (str, Path)):
        text = str(module)
    else:
        raise TypeError(
            f"runtime_env['py_modules'] must hold paths or modules, but {module!r} is of type {type(module)}"
        )
    if text.startswith(SCHEME):
        return _known_package(text, "py_modules")
    if _scheme(text) == _STORED:
        return SCHEME + _stored(text, "py_modules")
    path, is_uri = _local(text, "py_modules")
    if path.is_dir():
        return SCHEME + packages.ship_folder(path, ["__pycache__", *excludes], within=path.resolve().name)
    if not path.exists():
        raise ValueError(f"runtime_env['py_modules'] names {text!r}, but there is no such folder or file: correct the path")
    if path.suffix in (".whl", ".zip"):
        return SCHEME + packages.ship_archive(path, strips_folder=is_uri and path.suffix == ".zip")
    if path.suffix == ".py":
        return SCHEME + packages.ship_file(path)
    raise ValueError(
        f"runtime_env['py_modules'] names {text!r}, which is no folder, .py file, .whl or .zip: name one of these"
    )


def _path_of(module: ModuleType) -> str:
    places = list(getattr(module, "__path__", []))
    if len(places) > 1:
        raise ValueError(
            f"runtime_env['py_modules'] has the module {module.__name__}, which lies in several folders ({', '.join(places)}): "
            "name the one folder that is meant"
        )
    if places:
        return str(places[0])
    if not getattr(module, "__file__", None):
        raise ValueError(f"runtime_env['py_modules'] has the module {module.__name__}, which has no file: it cannot travel")
    return str(module.__file__)


def _hook(hook: Any) -> Any:
    if isinstance(hook, (str, dict)):
        return hook
    name = f"{getattr(hook, '__module__', '?')}.{getattr(hook, '__qualname__', repr(hook))}"
    try:
        body = _pickling.dumps(hook)
    except Exception as error:
        raise RuntimeEnvSetupError(
            f"the worker_process_setup_hook {name} cannot be pickled ({error}): let it capture nothing that cannot travel, "
            "or name it as 'module.function'"
        ) from error
    if len(body) > _HOOK_BYTES_LIMIT:
        raise RuntimeEnvSetupError(
            f"the worker_process_setup_hook {name} is {len(body)} bytes pickled, and {_HOOK_BYTES_LIMIT} are allowed: it "
            "captures a large value, which belongs into a file or into put()"
        )
    return {"name": name, "pickle": base64.b64encode(body).decode()}


def libraries(paths: list[str]) -> list[str]:
    """Those of `paths` that are this interpreter's own: its standard library and its folders of installed packages."""
    # What `sysconfig` says too, whose import would take a part of init().
    own = {os.path.dirname(os.__file__), *site.getsitepackages(), site.getusersitepackages()}
    return [path for path in paths if path in own or any(path.startswith(f"{folder}{os.sep}") for folder in own)]


def driver_side() -> tuple[str, list[str], str]:
    """This process's interpreter, import path and directory, for its workers to have the same."""
    try:
        here = os.getcwd()
    except OSError:
        here = "/"  # it was deleted under this program, and workers could not enter it either
    return sys.executable, [os.path.join(here, path) for path in sys.path], here
