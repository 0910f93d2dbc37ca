"""What a task's or an actor's process should find around it.

Purpose: `RuntimeEnv` and its rules: which fields there are, what they may hold,
and how an environment inherits from the one around it.

Invariants:
1. A field Oxiray cannot provide is never silently dropped: `unsupported_fields`
   names it and the caller refuses.
2. Unknown keys are kept: in Ray they belong to plugins.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

#: Field -> the types it may have.
_FIELD_TYPES: dict[str, tuple[type, ...]] = {
    "env_vars": (dict,),
    "working_dir": (str, Path),
    "py_modules": (list,),
    "py_executable": (str,),
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
#: Fields Ray knows and this version of Oxiray does not provide.
_UNSUPPORTED = (*(name for name in _FIELD_TYPES if name != "env_vars"), "worker_process_setup_hook", "mpi")
_INSTALLERS = ("pip", "uv", "conda")


class RuntimeEnvConfig(dict):  # type: ignore[type-arg]
    """How an environment is prepared, as against what is in it."""

    known_fields = frozenset({"setup_timeout_seconds", "eager_install", "log_files"})

    def __init__(
        self, setup_timeout_seconds: int = 600, eager_install: bool = True, log_files: list[str] | None = None
    ) -> None:
        if not isinstance(setup_timeout_seconds, int):
            raise TypeError(f"setup_timeout_seconds must be an int, but is {setup_timeout_seconds!r}")
        if setup_timeout_seconds <= 0 and setup_timeout_seconds != -1:
            raise ValueError(
                f"setup_timeout_seconds is {setup_timeout_seconds}, but must be greater than zero, or -1 for no limit"
            )
        if not isinstance(eager_install, bool):
            raise TypeError(f"eager_install must be a bool, but is {eager_install!r}")
        if log_files is not None and not _is_strings(log_files):
            raise TypeError(f"log_files must be a list of strings, but is {log_files!r}")
        super().__init__(
            setup_timeout_seconds=setup_timeout_seconds, eager_install=eager_install, log_files=log_files or []
        )

    @classmethod
    def parse_and_validate_runtime_env_config(cls, config: Mapping[str, Any]) -> RuntimeEnvConfig:
        """The configuration written as a plain dictionary."""
        if isinstance(config, RuntimeEnvConfig):
            return config
        if not isinstance(config, Mapping):
            raise TypeError(f"runtime_env['config'] must be a dict or a RuntimeEnvConfig, but is a {type(config)}")
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
        if name in self.known_fields and value is not None:
            value = _checked_field(name, value)
        super().__setitem__(name, value)

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

    def working_dir(self) -> str | None:
        """The working directory it names."""
        return self.get("working_dir")

    def py_modules(self) -> list[str]:
        """The modules it names."""
        return list(self.get("py_modules") or [])

    def _check(self) -> None:
        for name in list(self):
            if name in self.known_fields:
                super().__setitem__(name, _checked_field(name, self[name]))
        installers = [name for name in _INSTALLERS if self.get(name)]
        if len(installers) > 1:
            raise ValueError(
                f"The 'pip' field, 'uv' field, and 'conda' field of runtime_env cannot be specified at the same time, "
                f"but {' and '.join(repr(name) for name in installers)} are: keep one (conda can list pip packages)"
            )
        if self.get("container") and self.get("image_uri"):
            raise ValueError("runtime_env has both 'container' and 'image_uri', which say the same: keep 'image_uri'")


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
    are taken together, the child's value winning.
    """
    merged = {**(parent or {}), **(child or {})}
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
    return sorted(name for name in _UNSUPPORTED if (env or {}).get(name))


def _checked_field(name: str, value: Any) -> Any:
    if name == "config":
        return RuntimeEnvConfig.parse_and_validate_runtime_env_config(value)
    if name == "worker_process_setup_hook":
        if not isinstance(value, str) and not callable(value):
            raise TypeError(f"runtime_env['worker_process_setup_hook'] must be a function or its name, not {value!r}")
        return value
    expected: Any = _FIELD_TYPES[name]
    if not isinstance(value, expected):
        names = " or ".join(kind.__name__ for kind in expected)
        raise TypeError(f"runtime_env[{name!r}] must be of type {names}, but {value!r} is of type {type(value)}")
    if name == "env_vars":
        _check_env_vars(value)
    elif name in ("excludes", "java_jars") and not _is_strings(value):
        raise TypeError(f"runtime_env[{name!r}] must be a list of strings, but is {value!r}")
    return os.fspath(value) if isinstance(value, Path) else value


def _check_env_vars(variables: Mapping[Any, Any]) -> None:
    for key, value in variables.items():
        if not isinstance(key, str):
            raise TypeError(
                f"runtime_env['env_vars'] must be of type dict[str, str], but the key {key!r} is of type {type(key)}"
            )
        if not isinstance(value, str):
            raise TypeError(
                f"runtime_env['env_vars'] must be of type dict[str, str], but {key!r} has the value {value!r} of "
                f"type {type(value)}: write it as {str(value)!r}"
            )
        if not key or "=" in key or "\0" in key + value:
            raise ValueError(
                f"runtime_env['env_vars'] has the variable {key!r}, which no process can be given: a name is not "
                "empty and holds no '=', and neither name nor value holds a zero byte"
            )


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(element, str) for element in value)


__all__ = ["RuntimeEnv", "RuntimeEnvConfig", "checked", "conflicts", "merge", "unsupported_fields"]
