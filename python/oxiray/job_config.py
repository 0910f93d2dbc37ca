"""What a program may say of its job, to pass to `init(job_config=...)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oxiray import _missing, _without_effect, runtime_env as environments
from oxiray._logging import LoggingConfig

_LIFETIMES = ("detached", "non_detached")


class JobConfig:
    """A job's runtime environment, namespace, default lifetime of actors, metadata, and logging."""

    def __init__(
        self,
        jvm_options: list[str] | None = None,
        code_search_path: Sequence[str] | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        _client_job: bool = False,
        metadata: dict[str, str] | None = None,
        ray_namespace: str | None = None,
        default_actor_lifetime: str = "non_detached",
        _disable_job_level_lineage_reconstruction: bool = False,
        _py_driver_sys_path: list[str] | None = None,
        *,
        priority: int | None = None,
    ) -> None:
        if jvm_options:
            raise ValueError(f"jvm_options={jvm_options!r}: Oxiray runs no Java. Leave it out")
        if code_search_path is not None and not isinstance(code_search_path, (list, tuple)):
            raise TypeError(f"code_search_path is a list of directories, and {type(code_search_path)} was given")
        without = {
            "code_search_path": code_search_path,
            "_disable_job_level_lineage_reconstruction": _disable_job_level_lineage_reconstruction,
        }
        _without_effect.tell("JobConfig", without)
        self.jvm_options: list[str] = []
        self.code_search_path = list(code_search_path or [])
        self.metadata = dict(metadata or {})
        self.ray_namespace = ray_namespace
        #: How urgent what the job makes is, from -1000 to 1000; OXIRAY_JOB_PRIORITY, else 0, where it is None. Oxiray's own.
        self.priority = priority
        self.runtime_env: dict[str, Any] = {}
        self.py_logging_config: LoggingConfig | None = None
        self._py_driver_sys_path = list(_py_driver_sys_path or [])
        self._default_actor_lifetime = "non_detached"
        self.set_runtime_env(runtime_env)
        self.set_default_actor_lifetime(default_actor_lifetime)

    def set_metadata(self, key: str, value: str) -> None:
        """Adds to the metadata, which nothing reads but programs."""
        self.metadata[key] = value

    def set_runtime_env(self, runtime_env: Mapping[str, Any] | None, validate: bool = False) -> None:
        """Sets the runtime environment; `validate` checks it now, and `init` does in any case."""
        given = dict(runtime_env or {})
        self.runtime_env = dict(environments.checked(given) or {}) if validate else given

    def set_ray_namespace(self, ray_namespace: str) -> None:
        """Sets where the job's actors have their names."""
        self.ray_namespace = ray_namespace

    def set_default_actor_lifetime(self, default_actor_lifetime: str) -> None:
        """Sets how long actors live that say nothing of it: `"detached"`, or `"non_detached"`."""
        if default_actor_lifetime not in _LIFETIMES:
            raise ValueError(
                f"the default lifetime of actors is 'detached' or 'non_detached', not {default_actor_lifetime!r}"
            )
        self._default_actor_lifetime = default_actor_lifetime

    def set_py_logging_config(self, logging_config: LoggingConfig | None = None) -> None:
        """Sets how the driver and the workers of the job log."""
        self.py_logging_config = logging_config

    def ensure_logging_config(self, logging_config: Mapping[str, Any] | LoggingConfig | None = None) -> None:
        """Sets how the job logs where that was not said yet. Raises `TypeError` for anything but a configuration."""
        if logging_config is None or self.py_logging_config is not None:
            return
        if isinstance(logging_config, Mapping):
            logging_config = LoggingConfig.from_dict(logging_config)
        elif not isinstance(logging_config, LoggingConfig):
            raise TypeError(f"logging_config is a LoggingConfig or a dictionary, and {type(logging_config)} was given")
        self.set_py_logging_config(logging_config)

    @classmethod
    def from_json(cls, job_config_json: Mapping[str, Any]) -> JobConfig:
        """The configuration that a dictionary read from JSON describes."""
        known = dict(job_config_json)
        return cls(
            runtime_env=known.get("runtime_env"),
            metadata=known.get("metadata"),
            ray_namespace=known.get("ray_namespace"),
            code_search_path=known.get("code_search_path"),
            default_actor_lifetime=known.get("default_actor_lifetime", "non_detached"),
            _py_driver_sys_path=known.get("py_driver_sys_path"),
        )


__getattr__ = _missing.attributes(__name__)
