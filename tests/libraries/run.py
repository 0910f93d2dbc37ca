"""Runs the cases of Ray's libraries with whatever `import ray` means here, and writes values and times as JSON.

One process, one cluster: `python run.py [--nodes 2] WRITTEN [LIBRARY | LIBRARY.CASE ...]`. A case that raises has its error as
its value. On two nodes each has half of the processors; Oxiray's are daemons that speak over TLS, at addresses of their own.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import ray

sys.path.insert(0, str(Path(__file__).parent))
#: How many processors the cluster is told to have: more than most machines that run this have free.
CPUS = 4
#: How many bytes of objects a node holds where there are several.
STORE_BYTES = 1 << 29
MODULES = ("data_cases", "tune_cases", "serve_cases", "train_data_cases", "trees_cases", "llm_cases", "rllib_cases")


def cases_of(module: ModuleType) -> dict[str, Any]:
    """The functions of a module that take nothing, but for those of a name with `_`: its cases."""
    own = [value for value in vars(module).values() if inspect.isfunction(value) and value.__module__ == module.__name__]
    return {case.__name__: case for case in own if not case.__name__.startswith("_") and not inspect.signature(case).parameters}


def run(case: Any) -> dict[str, Any]:
    began = time.monotonic()
    try:
        value = {"value": json.loads(json.dumps(case(), default=lambda number: number.item()))}
    except Exception:
        value = {"error": traceback.format_exc()[-3000:]}
    return {**value, "seconds": round(time.monotonic() - began, 2)}


def begun(nodes: int) -> Callable[[], None]:
    """Starts a cluster of so many nodes and enters it; returns what ends it."""
    if nodes == 1:
        ray.init(num_cpus=CPUS, log_to_driver=False, include_dashboard=False)
        return ray.shutdown
    from ray.cluster_utils import Cluster

    Cluster.over_network = True
    machine = {"num_cpus": CPUS // nodes, "object_store_memory": STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args=machine)
    for _ in range(nodes - 1):
        cluster.add_node(**machine)
    ray.init(address=cluster.address, log_to_driver=False)
    cluster.wait_for_nodes()

    def end() -> None:
        ray.shutdown()
        cluster.shutdown()

    return end


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=1, help="how many nodes the cluster has")
    parser.add_argument("written", type=Path, help="where values and times go")
    parser.add_argument("chosen", nargs="*", help="libraries and cases, such as data or data.sort_rows (default: all)")
    given = parser.parse_args()
    end = begun(given.nodes)
    results = {}
    wanted = {case.partition(".")[0] for case in given.chosen}
    for name in MODULES:
        library = name.removesuffix("_cases")
        if wanted and library not in wanted:
            continue
        module = importlib.import_module(name)
        for case, function in cases_of(module).items():
            key = f"{library}.{case}"
            if not wanted or library in given.chosen or key in given.chosen:
                results[key] = run(function)
                print(key, "failed" if "error" in results[key] else "ran", results[key]["seconds"], file=sys.stderr, flush=True)
                given.written.write_text(json.dumps(results, indent=1))
    end()


if __name__ == "__main__":
    main()
