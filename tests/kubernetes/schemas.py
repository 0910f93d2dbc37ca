"""Kubernetes' own schemas of its objects, which refuse every field that it does not know."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
#: What scripts/kubernetes-tools unpacked.
TOOLS = ROOT / ".build" / "kubernetes"


@functools.cache
def _definitions() -> dict[str, Any]:
    return dict(json.loads((TOOLS / "definitions.json").read_text())["$defs"])


@functools.cache
def _validator(version: str, kind: str) -> Any:
    import jsonschema  # comes with the schemas, which not every environment has

    def is_it(schema: dict[str, Any]) -> bool:
        told = {name: schema.get("properties", {}).get(name, {}).get("enum") for name in ("apiVersion", "kind")}
        return told == {"apiVersion": [version], "kind": [kind]}

    found = [name for name, schema in _definitions().items() if is_it(schema)]
    assert len(found) == 1, f"Kubernetes has no {version} {kind}"
    return jsonschema.Draft7Validator({"$ref": f"#/$defs/{found[0]}", "$defs": _definitions()})


def problems(given: dict[str, Any]) -> list[str]:
    """What is wrong with an object, each with its place; nothing where the API would take it."""
    where = f"{given['kind']} {given['metadata'].get('name')}"
    errors = _validator(given["apiVersion"], given["kind"]).iter_errors(given)
    return [f"{where}: {error.json_path}: {error.message}" for error in errors]
