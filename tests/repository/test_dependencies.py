"""The wheel names everything that others wrote and it has within, with the licences; what is let through has a reason."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
OXIRAY = importlib.metadata.distribution("oxiray")
VENDORED = ROOT / "crates" / "dashboard" / "page" / "vendor"
#: The packages that the native files of the wheel are made of.
PROGRAMS = ["oxiray-cli", "oxiray-dashboard", "oxiray-python", "oxiray-storage"]


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    """The bill of materials of the wheel that is installed."""
    text = OXIRAY.read_text("sboms/oxiray.cdx.json")
    assert text is not None, "the wheel has no bill of materials"
    told: dict[str, Any] = json.loads(text)
    return told


def compiled() -> set[tuple[str, str]]:
    """Names and versions of the crates that are compiled into the native files."""
    selected = [word for program in PROGRAMS for word in ("-p", program)]
    edges = ["--edges", "normal,no-proc-macro", "--prefix", "none", "--no-dedupe", "--format", "{p}"]
    command = ["cargo", "tree", "--locked", *selected, *edges]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    words = [line.split() for line in told.splitlines() if line]
    return {(name, version.removeprefix("v")) for name, version, *_ in words}


def test_the_bill_names_every_crate_and_script(bill: dict[str, Any]) -> None:
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    named = {kind: set() for kind in ("cargo", "npm", "generic")}
    for one in bill["components"]:
        named[re.match(r"pkg:(\w+)/", one["purl"])[1]].add((one["name"], one["version"]))
    assert named["cargo"] == compiled()
    assert {name for name, _ in named["npm"]} == {"htm", "preact", "uplot"} and {name for name, _ in named["generic"]} == {"rust-std"}


def test_the_bill_gives_licences_digests_and_who_leans_on_whom(bill: dict[str, Any]) -> None:
    foreign = [one for one in bill["components"] if not one["name"].startswith("oxiray")]
    assert foreign
    assert [one["name"] for one in bill["components"] if not one["licenses"]] == []
    assert [one["name"] for one in foreign if one["purl"].startswith("pkg:cargo/") and not one["hashes"]] == []
    leaning = {row["ref"]: row.get("dependsOn", []) for row in bill["dependencies"]}
    known = {one["bom-ref"] for one in bill["components"]}
    assert {ref for refs in leaning.values() for ref in refs} == known, "everything is reached from the product"
    assert any(ref.startswith("pkg:cargo/ring@") for ref in leaning["pkg:cargo/rustls@" + version_of(bill, "rustls")])


def version_of(bill: dict[str, Any], name: str) -> str:
    [version] = [one["version"] for one in bill["components"] if one["name"] == name]
    return str(version)


def test_the_bill_names_neither_a_time_nor_a_folder(bill: dict[str, Any]) -> None:
    assert "timestamp" not in bill["metadata"]
    assert re.findall(r"file://|path\+|/home/|/root/", json.dumps(bill)) == []


def test_the_licence_of_everything_foreign_travels_with_it(bill: dict[str, Any]) -> None:
    text = OXIRAY.read_text("licenses/THIRD-PARTY-LICENSES.txt")
    assert text is not None
    headed = set(re.findall(r"^([\w-]+ \S+) \(.+\)$", text, re.MULTILINE))
    foreign = {f"{one['name']} {one['version']}" for one in bill["components"] if not one["name"].startswith("oxiray")}
    assert foreign and foreign - headed == set()
    for words in ("Apache License", "Permission is hereby granted, free of charge", "Redistribution and use in source and binary"):
        assert words in text


def test_each_script_of_others_stands_with_its_component() -> None:
    listed = tomllib.loads((VENDORED / "components.toml").read_text())["component"]
    files = {name for one in listed for name in one["files"]}
    assert files == {path.name for path in VENDORED.iterdir() if path.suffix in {".js", ".css"}}
    assert {one["license-file"] for one in listed} == {path.name for path in VENDORED.glob("LICENSE-*")}


def test_each_exception_has_a_reason() -> None:
    text = (ROOT / "deny.toml").read_text()
    policy = tomllib.loads(text)
    entries = [*policy["bans"]["skip"], *policy["bans"]["deny"]]
    assert entries and [entry["crate"] for entry in entries if len(entry.get("reason", "")) < 10] == []
    assert [name for name in ("multiple-versions", "wildcards") if policy["bans"][name] != "deny"] == []
    assert "ignore" not in policy["advisories"] or all("reason" in entry for entry in policy["advisories"]["ignore"])
    # This table has no field for a reason: a comment gives one to those below it.
    [exceptions] = re.findall(r"^exceptions = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert exceptions.lstrip().startswith("#")
