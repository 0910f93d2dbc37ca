"""What `make libraries` would run is what it has recorded values of: a helper that it takes for a case fails there only."""

from __future__ import annotations

import ast
import json
from pathlib import Path

LIBRARIES = Path(__file__).parent.parent / "libraries"


def cases(file: Path) -> set[str]:
    """The functions that `cases_of` of its run.py takes from a file."""
    own = [node for node in ast.parse(file.read_text()).body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    # What is cached is no function to `inspect`.
    plain = [node for node in own if not any("cache" in ast.unparse(one) for one in node.decorator_list)]
    return {node.name for node in plain if not node.name.startswith("_") and not ast.unparse(node.args)}


def test_each_case_has_a_recorded_value_and_each_value_a_case() -> None:
    found = {f"{file.name.removesuffix('_cases.py')}.{case}" for file in LIBRARIES.glob("*_cases.py") for case in cases(file)}
    assert found == set(json.loads((LIBRARIES / "expected.json").read_text()))
