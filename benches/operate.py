"""How long the operator takes for 500 pods, and how many requests: against the API stand-in, with pods on paper.

`make bench-operator` writes benches/OPERATOR.md.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "kubernetes"), str(ROOT / "tests" / "shared")]

from lab import Lab, cluster, group, wait_until  # noqa: E402


def measure(pods: int) -> tuple[float, float, dict[str, int]]:
    """Seconds until all pods were made, until the status told that all are ready, and the operator's requests."""
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder))
        try:
            server = lab.stand_in()
            lab.operator("--no-lease")
            lab.api.create("rayclusters", cluster(group(replicas=0, maxReplicas=pods)))
            wait_until(lambda: "demo-head" in lab.pods(), "the head is made")
            objects = server.store.objects["pods"]
            server.counted.clear()
            began = time.monotonic()
            change = {"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": pods}
            lab.api.patch("rayclusters", "demo", [change])
            wait_until(lambda: len(objects) == pods + 1, "all pods are made")
            made = time.monotonic() - began
            began = time.monotonic()
            ready = {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
            for name in [name for _, name in list(objects)]:
                lab.api.merge("pods", name, {"status": ready}, "status")
            wait_until(lambda: lab.status().get("readyWorkerReplicas") == pods, "all are ready")
            return made, time.monotonic() - began, dict(server.counted)
        finally:
            lab.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=500)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    made, ready, requests = measure(arguments.pods)
    rows = "\n".join(f"| {name} | {count} |" for name, count in sorted(requests.items()))
    text = (
        f"# The operator: {arguments.pods} pods\n\n"
        f"`make bench-operator`, on {platform.machine()}; the API is the stand-in of the tests, in Python, on the same machine.\n\n"
        f"From `replicas: {arguments.pods}` to the last pod made: {made:.1f} s. "
        f"From there to the status that all are ready, while each pod's status is written by the bench: {ready:.1f} s.\n\n"
        f"Requests of the operator in all: {sum(requests.values())}.\n\n| Request | Count |\n|---|---|\n{rows}\n"
    )
    print(text)
    if arguments.write:
        arguments.write.write_text(text)


if __name__ == "__main__":
    main()
