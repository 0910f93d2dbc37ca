"""What a task's or an actor's process should find around it.

Purpose: `RuntimeEnv` and its rules: which fields there are, what they may hold,
and how an environment inherits from the one around it.

Invariants:
1. A field Oxiray cannot provide is never silently dropped: `unsupported_fields`
   names it and the caller refuses, with what `ALTERNATIVES` says.
2. Unknown keys are kept: in Ray they belong to plugins.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from oxiray import _conda

#: Field -> the types it may have.
_FIELD_TYPES: dict[str, tuple[type, ...]] = {
    "env_vars": (dict,),
    "working_dir": (str, Path),
    "py_modules": (list,),
    "py_executable": (str,),
    "preload": (list, tuple),
    "device_isolation": (str,),
    "excludes": (list,),
    "pip": (list, dict, str),
    "uv": (list, dict, str),
    "conda": (dict, str),
    "container": (dict,),
    "image_uri": (str,),
    "java_jars": (list,),
    "nsight": (str, dict),
    "_nsight": (str, dict),
    "rocprof_sys": (str, dict),
    "_rocprof_sys": (str, dict),
}
#: Fields Ray knows and this version of Oxiray does not provide, each with what to do in its place.
ALTERNATIVES: dict[str, str] = {
    "container": "start the cluster inside of the container, or list what is needed under 'pip' or 'uv'",
    "image_uri": "start the cluster inside of the container, or list what is needed under 'pip' or 'uv'",
    "java_jars": "Oxiray runs Python only: leave it out",
    "nsight": "start the profiler in the task itself, on the part that matters, and leave it out",
    "_nsight": "start the profiler in the task itself, on the part that matters, and leave it out",
    "rocprof_sys": "start the profiler in the task itself, on the part that matters, and leave it out",
    "_rocprof_sys": "start the profiler in the task itself, on the part that matters, and leave it out",
    "mpi": "start mpirun in the task itself, and leave it out",
}
#: How far a process is kept from devices that it was not granted, weakest first.
DEVICE_ISOLATIONS = ("variable", "watch", "fence", "require")
_INSTALLERS = ("pip", "uv", "conda")
#: What decides on the interpreter: of these, what a child names replaces all that its parent has.
_INTERPRETERS = (*_INSTALLERS, "py_executable")
#: Installer -> what may be said of it besides its packages, each with its type.
_INSTALLER_OPTIONS: dict[str, dict[str, type]] = {
    "pip": {"pip_check": bool, "pip_version": str, "pip_install_options": list},
    "uv": {"uv_check": bool, "uv_version": str, "uv_pip_install_options": list},
}


class RuntimeEnvConfig(dict):  # type: ignore[type-arg]
    """How an environment is prepared, as against what is in it."""

    known_fields = frozenset({"setup_timeout_seconds", "eager_install", "log_files"})

    def __init__(
        self, setup_timeout_seconds: int = 600, eager_install: bool = True, log_files: list[str] | None = None
    ) -> None:
        if not isinstance(setup_timeout_seconds, int):
            raise TypeError(f"setup_timeout_seconds must be of type int, got: {type(setup_timeout_seconds)}")
        if setup_timeout_seconds <= 0 and setup_timeout_seconds != -1:
            raise ValueError(
                f"setup_timeout_seconds must be greater than zero or equals to -1, got: {setup_timeout_seconds}. -1 stands for no limit"
            )
        if not isinstance(eager_install, bool):
            raise TypeError(f"eager_install must be a boolean. got {type(eager_install)}")
        if log_files is not None and not _is_strings(log_files):
            raise TypeError(f"log_files must be a list of strings or None, got {log_files!r}")
        super().__init__(
            setup_timeout_seconds=setup_timeout_seconds, eager_install=eager_install, log_files=log_files or []
        )

    @classmethod
    def parse_and_validate_runtime_env_config(cls, config: Mapping[str, Any]) -> RuntimeEnvConfig:
        """The configuration written as a plain dictionary."""
        if isinstance(config, RuntimeEnvConfig):
            return config
        if not isinstance(config, Mapping):
            raise TypeError(f"runtime_env['config'] must be of type dict or RuntimeEnvConfig, got: {type(config)}")
        return cls(**{name: value for name, value in config.items() if name in cls.known_fields})

    @classmethod
    def default_config(cls) -> RuntimeEnvConfig:
        """The configuration of an environment that names none."""
        return cls()

    def to_dict(self) -> dict[str, Any]:
        """The configuration as a plain dictionary."""
        return dict(self)


class RuntimeEnv(dict):  # type: ignore[type-arg]
    """A checked runtime environment; a dictionary of the fields that were given."""

    known_fields = frozenset({*_FIELD_TYPES, "config", "worker_process_setup_hook"})

    def __init__(self, *, _validate: bool = True, **fields: Any) -> None:
        super().__init__({name: value for name, value in fields.items() if value is not None})
        if _validate:
            self._check()

    def __setitem__(self, name: str, value: Any) -> None:
        _check_by_schema(name, value)
        if name in self.known_fields and value is not None:
            value = checked_field(name, value)
            if value is None:
                return
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        # Variables may hold secrets, and this ends up in logs.
        shown = dict(self)
        if isinstance(shown.get("env_vars"), dict):
            shown["env_vars"] = dict.fromkeys(shown["env_vars"], "...")
        return f"{type(self).__name__}({shown!r})"

    def __reduce__(self) -> Any:
        return _restore, (dict(self),)

    def set(self, name: str, value: Any) -> None:
        """Same as `env[name] = value`."""
        self[name] = value

    def to_dict(self) -> dict[str, Any]:
        """The environment as a plain dictionary."""
        return dict(self)

    def env_vars(self) -> dict[str, str]:
        """The environment variables it sets."""
        return dict(self.get("env_vars") or {})

    def working_dir(self) -> str:
        """The working directory it names; empty for none."""
        return self.get("working_dir") or ""

    def working_dir_uri(self) -> str | None:
        """The working directory it names, as it is written; None for none."""
        return self.get("working_dir")

    def py_modules_uris(self) -> list[str]:
        """The modules it names, as they are written."""
        return self.py_modules()

    def py_executable(self) -> str | None:
        """The interpreter it names."""
        return self.get("py_executable")

    def has_working_dir(self) -> bool:
        """Whether it names a working directory."""
        return self.get("working_dir") is not None

    def has_pip(self) -> bool:
        """Whether pip installs something for it."""
        return bool(self.get("pip"))

    def has_uv(self) -> bool:
        """Whether uv installs something for it."""
        return bool(self.get("uv"))

    def has_conda(self) -> bool:
        """Whether it names a conda environment."""
        return bool(self.get("conda"))

    def conda_env_name(self) -> str | None:
        """The conda environment that it names; None where it lists packages, or names none."""
        conda = self.get("conda")
        return conda if isinstance(conda, str) and conda else None

    def conda_config(self) -> str | None:
        """The conda environment that it lists, as JSON; None where it names one, or none."""
        conda = self.get("conda")
        return json.dumps(conda, sort_keys=True) if isinstance(conda, dict) and conda else None

    def plugins(self) -> list[tuple[str, Any]]:
        """The fields that are plugins', with what they hold."""
        return [(name, value) for name, value in self.items() if name not in self.known_fields]

    def pip_config(self) -> dict[str, Any]:
        """What pip installs."""
        return dict(self.get("pip") or {})

    def uv_config(self) -> dict[str, Any]:
        """What uv installs."""
        return dict(self.get("uv") or {})

    def serialize(self) -> str:
        """The environment as JSON."""
        return json.dumps(RuntimeEnv(**self), sort_keys=True)

    @classmethod
    def deserialize(cls, serialized_runtime_env: str) -> RuntimeEnv:
        """The environment that `serialize` wrote."""
        return cls(_validate=False, **json.loads(serialized_runtime_env))

    def py_modules(self) -> list[str]:
        """The modules it names."""
        return list(self.get("py_modules") or [])

    def _check(self) -> None:
        for name in list(self):
            _check_by_schema(name, self[name])
            if name in self.known_fields:
                value = checked_field(name, self[name])
                if value is None:
                    del self[name]
                else:
                    super().__setitem__(name, value)
        installers = [name for name in _INSTALLERS if self.get(name)]
        if len(installers) > 1:
            raise ValueError(
                f"The 'pip' field, 'uv' field, and 'conda' field of runtime_env cannot be specified at the same time. "
                f"{' and '.join(repr(name) for name in installers)} are: keep one (conda can list pip packages)"
            )
        if self.get("container") and self.get("image_uri"):
            raise ValueError("runtime_env has both 'container' and 'image_uri', which say the same: keep 'image_uri'")
        if self.get("py_executable") and installers:
            raise ValueError(
                f"runtime_env has both 'py_executable' and {installers[0]!r}: packages are installed for the driver's "
                "interpreter. Install them where py_executable finds them, or leave it out"
            )


def _check_by_schema(name: str, value: Any) -> None:
    """Raises `jsonschema.ValidationError` for what does not meet the schema that the user has for this field."""
    if os.environ.get("RAY_RUNTIME_ENV_PLUGIN_SCHEMAS"):
        from oxiray._private.runtime_env.plugin_schema_manager import RuntimeEnvPluginSchemaManager

        RuntimeEnvPluginSchemaManager.validate(name, value)


def _restore(fields: dict[str, Any]) -> RuntimeEnv:
    return RuntimeEnv(_validate=False, **fields)


def checked(env: Mapping[str, Any] | None) -> RuntimeEnv | None:
    """The environment given as a dictionary, checked; None for none."""
    if env is None or isinstance(env, RuntimeEnv):
        return env
    if not isinstance(env, Mapping):
        raise TypeError(f"runtime_env must be a dict or a RuntimeEnv, but {env!r} is a {type(env)}")
    return RuntimeEnv(**{str(name): value for name, value in env.items()})


def merge(parent: Mapping[str, Any] | None, child: Mapping[str, Any] | None) -> dict[str, Any]:
    """What holds inside `parent` for something that asks for `child`.

    The child's fields replace the parent's, except that environment variables
    are taken together, the child's value winning. What decides on the interpreter
    counts as one field: a child that names `uv` does not inherit `pip`.
    """
    kept = dict(parent or {})
    if any((child or {}).get(name) for name in _INTERPRETERS):
        kept = {name: value for name, value in kept.items() if name not in _INTERPRETERS}
    merged = {**kept, **(child or {})}
    variables = {**((parent or {}).get("env_vars") or {}), **((child or {}).get("env_vars") or {})}
    if variables:
        merged["env_vars"] = variables
    return merged


def conflicts(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """The fields (and single environment variables) that both name with different values."""
    return list(_conflicts(first, second))


def _conflicts(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(set(first) & set(second)):
        if name != "env_vars":
            if first[name] != second[name]:
                yield name
            continue
        ours, theirs = first[name] or {}, second[name] or {}
        for variable in sorted(set(ours) & set(theirs)):
            if ours[variable] != theirs[variable]:
                yield f"env_vars[{variable!r}]"


def unsupported_fields(env: Mapping[str, Any] | None) -> list[str]:
    """The fields that ask for something this version of Oxiray does not provide."""
    asked = env or {}
    return sorted(name for name in ALTERNATIVES if asked.get(name))


def checked_field(name: str, value: Any) -> Any:
    """The field's value, checked and in its full form; None where it asks for nothing."""
    if name == "config":
        return RuntimeEnvConfig.parse_and_validate_runtime_env_config(value)
    if name == "worker_process_setup_hook":
        if not isinstance(value, str) and not callable(value):
            raise TypeError(f"runtime_env['worker_process_setup_hook'] must be a function or its name, not {value!r}")
        return value
    expected: Any = _FIELD_TYPES[name]
    if not isinstance(value, expected):
        names = "Dict[str, str]" if name == "env_vars" else " or ".join(kind.__name__ for kind in expected)
        raise TypeError(f"runtime_env[{name!r}] must be of type {names}, but {value!r} is of type {type(value)}")
    if name == "env_vars":
        _check_env_vars(value)
    elif name in ("excludes", "java_jars") and not _is_strings(value):
        raise TypeError(f"runtime_env[{name!r}] must be of type List[str], got {value!r}")
    elif name == "preload":
        _check_preload(list(value))
        # An empty list asks for something: that nothing is imported that would be otherwise.
        return list(value)
    elif name == "device_isolation":
        check_device_isolation("runtime_env['device_isolation']", value)
    elif name in _INSTALLER_OPTIONS:
        return _checked_installer(name, value)
    elif name == "py_modules":
        _check_modules(value)
    elif name == "conda":
        return _conda.checked(value) or None
    return os.fspath(value) if isinstance(value, Path) else value


def check_device_isolation(name: str, value: str) -> None:
    """Refuse what is no way to keep processes from devices."""
    if value not in DEVICE_ISOLATIONS:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, DEVICE_ISOLATIONS))}, weakest first, not {value!r}")


def with_device_isolation(env: Mapping[str, Any] | None, isolation: str | None) -> Mapping[str, Any] | None:
    """The environment with what the option `device_isolation` of a task or an actor says."""
    if isolation is None:
        return env
    said = (env or {}).get("device_isolation")
    if said not in (None, isolation):
        raise ValueError(
            f"device_isolation is {isolation!r}, and runtime_env['device_isolation'] is {said!r}: they say the same, so leave "
            "one of them out"
        )
    return {**(env or {}), "device_isolation": isolation}


def _check_env_vars(variables: Mapping[Any, Any]) -> None:
    for key, value in variables.items():
        if not isinstance(key, str):
            raise TypeError(
                f"runtime_env['env_vars'] must be of type Dict[str, str], but the key {key!r} is of type {type(key)}"
            )
        if not isinstance(value, str):
            raise TypeError(
                f"runtime_env['env_vars'] must be of type Dict[str, str], but the value of {key!r} is of type "
                f"{type(value)}: write it as a string"
            )
        if not key or "=" in key or "\0" in key + value:
            raise ValueError(
                f"runtime_env['env_vars'] has the variable {key!r}, which no process can be given: a name is not "
                "empty and holds no '=', and neither name nor value holds a zero byte"
            )


def _checked_installer(name: str, value: Any) -> dict[str, Any] | None:
    """What `pip` or `uv` is to install, in its full form; None for nothing."""
    options = _INSTALLER_OPTIONS[name]
    asked = dict(value) if isinstance(value, dict) else {"packages": value}
    if unknown := sorted(set(asked) - set(options) - {"packages"}):
        raise ValueError(
            f"runtime_env[{name!r}] can only have these fields: packages, {', '.join(options)}, but got: "
            f"{', '.join(map(repr, unknown))}"
        )
    if "packages" not in asked:
        raise ValueError(f"runtime_env[{name!r}] must include field 'packages', but got {sorted(asked)}")
    for option, kind in options.items():
        if option in asked and not isinstance(asked[option], kind):
            raise TypeError(
                f"runtime_env[{name!r}][{option!r}] must be of type {kind.__name__}, but {asked[option]!r} is of type "
                f"{type(asked[option])}"
            )
        if kind is list and not _is_strings(asked.get(option, [])):
            raise TypeError(f"runtime_env[{name!r}][{option!r}] must be a list of strings, but is {asked[option]!r}")
    packages = asked["packages"]
    if isinstance(packages, str):
        packages = _requirements(packages, name)
    if not isinstance(packages, list):
        raise ValueError(f"runtime_env[{name!r}]['packages'] must be a list or a file's name, but is {packages!r}")
    if not _is_strings(packages):
        raise TypeError(f"runtime_env[{name!r}] must name packages as strings, but has {packages!r}")
    asked["packages"] = list(dict.fromkeys(packages))
    asked.setdefault(f"{name}_check", False)
    return asked if asked["packages"] else None


def _requirements(path: str, name: str) -> list[str]:
    try:
        return Path(path).read_text().strip().split("\n")
    except OSError as error:
        raise ValueError(
            f"runtime_env[{name!r}] is {path!r}, which is not a valid file of requirements ({error.strerror}): correct the "
            "path, or list the packages"
        ) from None


def _check_preload(modules: list[Any]) -> None:
    for module in modules:
        if not isinstance(module, str) or not all(part.isidentifier() for part in module.split(".")):
            raise TypeError(f"runtime_env['preload'] must be a list of modules' names, but has {module!r}")


def _check_modules(modules: list[Any]) -> None:
    for module in modules:
        if not isinstance(module, (str, Path, ModuleType)):
            raise TypeError(f"runtime_env['py_modules'] must hold paths or modules, but {module!r} is of type {type(module)}")


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(element, str) for element in value)


__all__ = ["RuntimeEnv", "RuntimeEnvConfig", "checked", "checked_field", "conflicts", "merge", "unsupported_fields"]
