"""What is installed into a cluster says one thing, whichever way it is installed. `tests/kubernetes` has Helm look at it."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "oxiray"


def test_the_chart_has_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    plain = (DEPLOY / "kubernetes" / "operator.yaml").read_text()
    assert set(re.findall(r"oxiray:([\d.]+)", plain)) == {version}


def rules(text: str) -> list[Any]:
    return sorted(yaml.safe_load(text) or [], key=json.dumps)


def test_the_operator_has_the_same_rights_either_way() -> None:
    templates = (CHART / "templates" / "_rules.tpl").read_text()
    of_chart = rules("\n".join(line for line in templates.splitlines() if "{{" not in line))
    objects = yaml.safe_load_all((DEPLOY / "kubernetes" / "rbac.yaml").read_text())
    [role] = [found for found in objects if found["kind"] == "ClusterRole"]
    hint = "deploy/kubernetes/rbac.yaml and deploy/helm/oxiray/templates/_rules.tpl are to say the same"
    assert of_chart and of_chart == rules(json.dumps(role["rules"])), hint


def test_the_chart_has_the_definitions_and_no_copy_of_them() -> None:
    [definitions] = (CHART / "crds").iterdir()
    assert definitions.is_symlink() and definitions.resolve() == DEPLOY / "kubernetes" / "crd.yaml"
