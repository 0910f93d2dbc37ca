"""Schemas that fields of a runtime environment have to meet, where the user names some.

Invariant: a file that cannot be used is told of and skipped, since the fields of others do not depend on it.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from oxiray import _missing
from oxiray._private.runtime_env.constants import RAY_RUNTIME_ENV_PLUGIN_SCHEMA_SUFFIX, RAY_RUNTIME_ENV_PLUGIN_SCHEMAS_ENV_VAR

logger = logging.getLogger("ray")


class RuntimeEnvPluginSchemaManager:
    """The JSON schemas in the files that RAY_RUNTIME_ENV_PLUGIN_SCHEMAS names; the `title` of each is the field that it is for.

    They are read before the first field is checked, and again after `clear()`.
    """

    schemas: ClassVar[dict[str, dict[str, Any]]] = {}
    loaded: ClassVar[bool] = False

    @classmethod
    def validate(cls, name: str, instance: Any) -> None:
        """Raises `jsonschema.ValidationError` where the field's value does not meet its schema; without one, any does."""
        if not cls.loaded:
            for file in _named_files():
                cls._load(file)
            cls.loaded = True
        schema = cls.schemas.get(name)
        if schema is None:
            return
        try:
            import jsonschema
        except ImportError as error:
            raise ImportError(
                f"runtime_env[{name!r}] has a schema ({RAY_RUNTIME_ENV_PLUGIN_SCHEMAS_ENV_VAR}), which the package jsonschema "
                "checks: install it with `pip install jsonschema`, or unset the variable"
            ) from error
        jsonschema.validate(instance=instance, schema=schema)

    @classmethod
    def clear(cls) -> None:
        """Forgets the schemas: the next check reads them anew."""
        cls.schemas.clear()
        cls.loaded = False

    @classmethod
    def _load(cls, file: Path) -> None:
        try:
            schema = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            logger.error("The schema %s of a runtime environment is skipped: %s", file, error)
            return
        title = schema.get("title") if isinstance(schema, dict) else None
        if not isinstance(title, str) or not title:
            logger.error("The schema %s of a runtime environment is skipped: it has no `title`, which names the field", file)
        elif title in cls.schemas:
            logger.error("The schema %s of a runtime environment is skipped: another one has the title %r, too", file, title)
        else:
            cls.schemas[title] = schema


def _named_files() -> Iterator[Path]:
    """The files that the variable names, and those below the folders that it names."""
    for text in filter(None, os.environ.get(RAY_RUNTIME_ENV_PLUGIN_SCHEMAS_ENV_VAR, "").split(",")):
        named = Path(text)
        if named.is_dir():
            yield from sorted(named.rglob(f"*{RAY_RUNTIME_ENV_PLUGIN_SCHEMA_SUFFIX}"))
        elif text.endswith(RAY_RUNTIME_ENV_PLUGIN_SCHEMA_SUFFIX):
            yield named


__all__ = ["RuntimeEnvPluginSchemaManager"]

__getattr__ = _missing.attributes(__name__)
