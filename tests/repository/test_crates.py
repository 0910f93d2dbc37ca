"""Crates that are published say what a registry asks for, and lean on published ones of the same release alone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
#: Tools of this repository, what only tests need, what the wheel has, and the operator, which is passed on as an image.
NOT_PUBLISHED = {"eighth-family", "fuzz", "models", "nvml-fixture", "operator", "python", "scale", "sim"}


@pytest.fixture(scope="module")
def crates() -> dict[str, dict[str, Any]]:
    """What cargo knows of each crate of the workspace, by its name without the prefix."""
    command = ["cargo", "metadata", "--locked", "--no-deps", "--format-version=1"]
    told = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    return {package["name"].removeprefix("oxiray-"): package for package in told["packages"]}


def test_what_is_not_published_is_known(crates: dict[str, dict[str, Any]]) -> None:
    assert {name for name, crate in crates.items() if crate["publish"] == []} == NOT_PUBLISHED


def test_the_published_say_what_a_registry_asks_for(crates: dict[str, dict[str, Any]]) -> None:
    published = {name: crate for name, crate in crates.items() if name not in NOT_PUBLISHED}
    fields = ("description", "license", "rust_version")
    assert {name: field for name, crate in published.items() for field in fields if not crate[field]} == {}
    assert [name for name, crate in published.items() if len(crate["description"]) > 200] == []


def test_the_published_lean_on_the_published_of_the_same_release(crates: dict[str, dict[str, Any]]) -> None:
    own = {
        (name, on["name"].removeprefix("oxiray-"), on["kind"], on["req"])
        for name, crate in crates.items()
        if name not in NOT_PUBLISHED
        for on in crate["dependencies"]
        if on["name"].startswith("oxiray")
    }
    built = [(name, on, requirement) for name, on, kind, requirement in own if kind != "dev"]
    assert built
    assert [row for row in built if row[1] in NOT_PUBLISHED or row[2] != f"={crates[row[1]]['version']}"] == []
    # Cargo leaves a dependency of tests out of the package where it has no version.
    tests = [(name, on, requirement) for name, on, kind, requirement in own if kind == "dev" and on in NOT_PUBLISHED]
    assert tests and {requirement for _, _, requirement in tests} == {"*"}
