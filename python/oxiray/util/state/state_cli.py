"""Rows of the state API as text, for compatibility. The commands themselves are `oxiray list`, `get`, `summary` and `logs`."""

from __future__ import annotations

import enum
import importlib
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from oxiray import _missing
from oxiray.util.state.common import StateSchema

_EMPTY = "No resource in the cluster"


class AvailableFormat(enum.Enum):
    """How rows are written."""

    DEFAULT = "default"
    JSON = "json"
    YAML = "yaml"
    TABLE = "table"


def get_table_output(state_data: list[dict[str, Any]], schema: type[StateSchema], detail: bool) -> str:
    """The rows as a table under their number and the time."""
    columns = schema.list_columns(detail=detail)
    header = ["", *(column.upper() for column in columns)]
    rows = [[str(index), *(_shown(row.get(column)) for column in columns)] for index, row in enumerate(state_data)]
    widths = [max(map(len, cells)) for cells in zip(header, *rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() for cells in (header, *rows)]
    line = "-" * 30
    title = f"======== List: {datetime.now()} ========"
    return "\n".join(["", title, "Stats:", line, f"Total: {len(state_data)}", "", "Table:", line, *lines, ""])


def _shown(value: Any) -> str:
    return "" if value is None else str(value)


def output_with_format(
    state_data: list[dict[str, Any]],
    *,
    schema: type[StateSchema] | None,
    format: AvailableFormat = AvailableFormat.DEFAULT,
    detail: bool = False,
) -> str:
    """The rows in that format; `schema` says which columns a table has. Raises `ImportError` for YAML without PyYAML."""
    if format is AvailableFormat.JSON:
        return json.dumps(state_data)
    if format is AvailableFormat.YAML:
        return _as_yaml(state_data)
    if schema is None:
        raise ValueError(f"format={format.value!r} is a table, whose columns are those of a schema, and schema=None was given")
    return get_table_output([schema.humanify(row) for row in state_data], schema, detail)


def _as_yaml(state_data: list[dict[str, Any]]) -> str:
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError as error:
        raise ImportError("format='yaml' needs PyYAML: install it with `pip install pyyaml`, or take format='json'") from error
    written: str = yaml.dump(state_data, indent=4, explicit_start=True, explicit_end=True, sort_keys=False)
    return written


def format_list_api_output(
    state_data: Sequence[StateSchema],
    *,
    schema: type[StateSchema],
    format: AvailableFormat = AvailableFormat.DEFAULT,
    detail: bool = False,
) -> str:
    """What a list returned, as text; a sentence where it is empty."""
    if not state_data:
        return _EMPTY
    return output_with_format([row.asdict() for row in state_data], schema=schema, format=format, detail=detail)


def format_get_api_output(
    state_data: StateSchema | Sequence[StateSchema] | None,
    id: str,
    *,
    schema: type[StateSchema],
    format: AvailableFormat = AvailableFormat.YAML,
) -> str:
    """What a question for one thing returned, as text; a sentence where there is no such thing."""
    if not state_data:
        return f"Resource with id={id} not found in the cluster."
    rows = [state_data] if isinstance(state_data, StateSchema) else state_data
    return output_with_format([row.asdict() for row in rows], schema=schema, format=format, detail=True)


__getattr__ = _missing.attributes(__name__)
