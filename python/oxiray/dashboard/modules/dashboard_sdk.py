"""What commands of Ray's libraries make of their options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from oxiray import _missing


def parse_runtime_env_args(
    runtime_env: str | None = None, runtime_env_json: str | None = None, working_dir: str | None = None
) -> dict[str, Any]:
    """A runtime environment, of a YAML file or of JSON, with another `working_dir` where one is given.

    Raises `ValueError` where both are given, or it is no dictionary.
    """
    if runtime_env is not None and runtime_env_json is not None:
        raise ValueError("Only one of --runtime_env and --runtime-env-json can be provided.")
    found: Any = {}
    if runtime_env is not None:
        import yaml

        found = yaml.safe_load(Path(runtime_env).read_text(encoding="utf-8"))
    elif runtime_env_json is not None:
        found = json.loads(runtime_env_json)
    if not isinstance(found, dict):
        raise ValueError(f"a runtime environment is a dictionary, and {found!r} is none")
    return {**found, "working_dir": working_dir} if working_dir is not None else found


__all__ = ["parse_runtime_env_args"]

__getattr__ = _missing.attributes(__name__)
