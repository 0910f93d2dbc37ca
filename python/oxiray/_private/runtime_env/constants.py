"""The variable that names schemas of fields, and the ending of their files."""

from __future__ import annotations

from oxiray import _missing

RAY_RUNTIME_ENV_PLUGIN_SCHEMAS_ENV_VAR = "RAY_RUNTIME_ENV_PLUGIN_SCHEMAS"
RAY_RUNTIME_ENV_PLUGIN_SCHEMA_SUFFIX = ".json"

__getattr__ = _missing.attributes(__name__)
