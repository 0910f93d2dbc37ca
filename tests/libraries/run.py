"""Runs the cases of Ray's libraries with whatever `import ray` means here, and writes values and times as JSON.

One process, one cluster: `python run.py WRITTEN [CASE ...]`. A case that raises has its error as its value.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import ray

sys.path.insert(0, str(Path(__file__).parent))
#: How many processors the cluster is told to have: more than most machines that run this have free.
CPUS = 4
MODULES = ("data_cases", "tune_cases", "serve_cases", "train_data_cases")


def cases_of(module: ModuleType) -> dict[str, Any]:
    """The functions of a module that take nothing: its cases."""
    own = [value for value in vars(module).values() if inspect.isfunction(value) and value.__module__ == module.__name__]
    return {case.__name__: case for case in own if not inspect.signature(case).parameters}


def run(case: Any) -> dict[str, Any]:
    began = time.monotonic()
    try:
        value = {"value": json.loads(json.dumps(case()))}
    except Exception:
        value = {"error": traceback.format_exc()[-3000:]}
    return {**value, "seconds": round(time.monotonic() - began, 2)}


def main(written: str, *chosen: str) -> None:
    ray.init(num_cpus=CPUS, log_to_driver=False, include_dashboard=False)
    results = {}
    wanted = {case.partition(".")[0] for case in chosen}
    for name in MODULES:
        if wanted and name.removesuffix("_cases") not in wanted:
            continue
        module = importlib.import_module(name)
        for case, function in cases_of(module).items():
            key = f"{name.removesuffix('_cases')}.{case}"
            if not chosen or key in chosen:
                results[key] = run(function)
                print(key, "failed" if "error" in results[key] else "ran", results[key]["seconds"], file=sys.stderr, flush=True)
                Path(written).write_text(json.dumps(results, indent=1))
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
