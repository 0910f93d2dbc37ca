"""What `make` builds has every dependency of others with the same features, so that cargo compiles it once."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
#: What cargo is asked for apart from the tests of the whole workspace.
PROGRAMS = ["cli", "dashboard", "storage", "python", "operator", "fuzz", "sim", "scale", "nvml-fixture"]
#: Features of each dependency, by its name with version.
Features = dict[str, set[str]]


def features(selection: list[str], edges: str) -> Features:
    """Features of everything that is compiled for these packages; a dependency of build scripts may have others."""
    command = ["cargo", "tree", "--locked", "--edges", edges, "--prefix", "none", "--no-dedupe", "--format", "{p}|{f}"]
    printed = subprocess.run([*command, *selection], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found: Features = {}
    for line in printed.splitlines():
        package, _, enabled = line.partition("|")
        name = package.split(" (")[0]
        if name and not name.startswith("oxiray"):
            found.setdefault(name, set()).add(enabled)
    return found


def differing(one: Features, whole: Features) -> list[str]:
    """Dependencies of one that the whole has with other features only."""
    return [
        f"{name} has the features {' and '.join(sorted(enabled))}, and in the whole {' and '.join(sorted(whole[name]))}"
        for name, enabled in sorted(one.items())
        if name in whole and not enabled <= whole[name]
    ]


@pytest.fixture(scope="module")
def whole() -> Features:
    return features(["--workspace"], "normal,build,dev")


def agrees(selection: list[str], edges: str, whole: Features) -> None:
    found = differing(features(selection, edges), whole)
    advice = "add the missing features to crates/workspace-hack/Cargo.toml"
    assert not found, "\n".join([*found, advice])


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_is_built_of_what_the_tests_are_built_of(program: str, whole: Features) -> None:
    agrees(["-p", f"oxiray-{program}"], "normal,build", whole)


def test_the_examples_are_built_of_what_the_tests_are_built_of(whole: Features) -> None:
    agrees(["-p", "oxiray"], "normal,build,dev", whole)


def test_a_difference_is_found() -> None:
    assert differing({"a v1": {"std"}, "b v1": {""}}, {"a v1": {"alloc,std"}, "b v1": {"", "std"}}) != []
    assert differing({"b v1": {""}, "c v1": {"std"}}, {"b v1": {"", "std"}}) == []
