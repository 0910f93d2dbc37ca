"""Made-up wheels in the form of Ray's official one, so that nothing needs a network."""

from __future__ import annotations

import zipfile
from pathlib import Path

METADATA = """Metadata-Version: 2.4
Name: ray
Version: {version}
Requires-Python: >=3.10
Requires-Dist: click>=7.0
Provides-Extra: data
Requires-Dist: pandas>=2.2.3; extra == "data"
Requires-Dist: fsspec; extra == "data"
Provides-Extra: tune
Requires-Dist: fsspec; python_version >= "3.8" and extra == "tune"
Provides-Extra: default
Requires-Dist: aiohttp; extra == "default"
"""
FILES = {
    "ray/__init__.py": "raise ImportError('this is Ray itself')",
    "ray/_raylet.so": "native",
    "ray/_common/retry.py": "TIMES = 3",
    "ray/_common/constants.py": "HEAD_NODE_RESOURCE_NAME = 'other'\nONLY_THERE = 7",
    "ray/_common/test_utils.py": "class SignalActor: pass\nclass PrometheusTimeseries: pass",
    "ray/_common/usage/usage_lib.py": "raise ImportError('reports')",
    "ray/_private/worker.py": "raise ImportError('this is Ray itself')",
    "ray/data/__init__.py": "from ray._common.retry import TIMES\nimport ray._private.worker\nNAME = __name__",
    "ray/data/deep/inner.py": "class Row: pass",
    "ray/data/llm.py": "from ray.llm import NAME",
    "ray/data/tests/test_it.py": "raise AssertionError",
    "ray/llm/__init__.py": "NAME = __name__",
    "ray/llm/_internal/serve/benchmark/runners.py": "raise ImportError('measures')",
    "ray/tune/__init__.py": "NAME = __name__",
    "ray/tune/examples/one.py": "NAME = __name__",
    "ray/serve/__init__.py": "NAME = __name__",
    "ray/serve/llm/__init__.py": "raise ImportError('vLLM is not there')",
    "ray/serve/_private/test_utils.py": "from ray._common.test_utils import PrometheusTimeseries, SignalActor",
    "ray/train/__init__.py": "raise ImportError('Oxiray has its own')",
    "ray/train/_internal/session.py": "NAME = __name__",
    "ray/train/xgboost/__init__.py": (
        "from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer\n"
        "from ray.train.v2._internal.execution.train_fn_utils import get_train_fn_utils\n"
        "class XGBoostTrainer(DataParallelTrainer): pass"
    ),
    "ray/dashboard/head.py": "raise ImportError",
}


def official_wheel(folder: Path, version: str = "2.60.0") -> Path:
    path = folder / f"ray-{version}-cp311-cp311-manylinux2014_x86_64.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in FILES.items():
            wheel.writestr(name, text)
        wheel.writestr(f"ray-{version}.dist-info/METADATA", METADATA.format(version=version))
    return path
