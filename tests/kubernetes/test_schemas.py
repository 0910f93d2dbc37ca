"""What the operator makes is what Kubernetes takes: every object against its own schema, unknown fields refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import schemas
import yaml
from api_objects import Object
from lab import cluster, group, operator_binary

SAMPLES = Path(__file__).resolve().parent / "samples"

pytestmark = pytest.mark.skipif(
    not (schemas.TOOLS / "definitions.json").exists(), reason="no schemas: scripts/kubernetes-tools .build/kubernetes"
)


def everything() -> Object:
    """A cluster whose pods have all that the operator adds anywhere."""
    volume = {"backend": "rocksdb", "storage": {"size": "2Gi", "storageClassName": "fast", "subPath": "demo"}}
    claimed = group("claimed", replicas=1, resources={"GPU": "2"})
    claimed["template"]["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "two"}]
    parts = [group(replicas=1, numOfHosts=2), group("mig", replicas=1, limits={"nvidia.com/mig-1g.10gb": "1"}), claimed]
    made = cluster(*parts, enableInTreeAutoscaling=True, gcsFaultToleranceOptions=volume)
    made["spec"]["headGroupSpec"]["serviceType"] = "LoadBalancer"
    made["metadata"]["labels"] = {"ray.io/scheduler-name": "yunikorn", "ray.io/gang-scheduling-enabled": "true"}
    return made


@pytest.mark.parametrize("name", [*sorted(sample.stem for sample in SAMPLES.glob("*.yaml")), "everything"])
def test_objects_have_no_field_that_kubernetes_does_not_know(name: str, tmp_path: Path) -> None:
    given = SAMPLES / f"{name}.yaml"
    if not given.exists():
        given = tmp_path / "cluster.yaml"
        given.write_text(yaml.safe_dump(everything()))
    command = [str(operator_binary()), "show", "--json", str(given)]
    shown = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    made = [each for one in shown for each in one["objects"]]
    assert {"Pod", "Service", "PodDisruptionBudget"} <= {each["kind"] for each in made}
    assert [problem for each in made for problem in schemas.problems(each)] == []
