"""Which files of the official wheel are taken for which library: the allow-list.

Purpose: one table for whoever packs the files, loads them, or looks for names that they lack. A module is written without
`ray.`; one that stands here brings all that is below it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

#: What every library leans on. Pure Python, and no part of a daemon.
_COMMON = (
    "_common",
    "_private.accelerators",
    "_private.dict",
    "_private.label_utils",
    "_private.protobuf_compat",
    "_private.ray_constants",
    "_private.thirdparty",
    "air",
    "core.generated",
    "util.common",
    "widgets",
)
#: Parts of Ray Train that the libraries lean on, and its trainers for frameworks that Oxiray has none for; these stem from Oxiray's.
_OF_TRAIN = (
    "train._internal",
    "train.base_trainer",
    "train.constants",
    "train.context",
    "train.error",
    "train.lightgbm",
    "train.tensorflow",
    "train.trainer",
    "train.utils",
    "train.v2._internal.constants",
    "train.v2._internal.migration_utils",
    "train.v2.lightgbm",
    "train.v2.tensorflow",
    "train.v2.xgboost",
    "train.xgboost",
)
#: Ray Serve, and what of the modules above it leans on.
_OF_SERVE = (
    "_private.arrow_serialization",
    "autoscaler._private.cli_logger",
    "dag.base",
    "dag.format_utils",
    "dag.py_obj_scanner",
    "dashboard.modules.metrics.dashboards",
    "serve",
    "util.serialization_addons",
)
#: Library -> the modules that it consists of, and the other libraries without which it does not import.
LIBRARIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "dask": ((), ()),
    # `iter_torch_batches` asks `train.utils` whether it runs in a worker of a training run.
    "data": (("_private.event", "dashboard.modules.metrics.dashboards", "data", "train.utils"), ()),
    "llm": (("data.llm", "llm", "serve.llm"), ("data", "serve")),
    "rllib": (("rllib",), ("tune", "data")),
    "serve": (_OF_SERVE, ()),
    "train": (_OF_TRAIN, ()),
    "tune": (("tune",), ("train",)),
}

#: What a template imports for the tasks and actors of a library's own: a worker that imports it itself needs seconds.
PRELOADED = {
    "data": ("ray.data",),
    "rllib": ("ray.rllib", "ray.rllib.algorithms.algorithm"),
    "serve": ("ray.serve", "ray.serve._private.replica"),
    "tune": ("ray.tune",),
}

#: Within what was taken: tests that come with a library, what only they need, and what reports to Ray's makers. Examples and
#: helpers for tests are taken: the libraries' public tests import them, and so do tests of programs.
LEFT_OUT = (
    "_common.observability",
    "_common.usage",
    "air.examples",
    "llm._internal.batch.benchmark",
    "llm._internal.serve.benchmark",
    "llm.examples",
    "rllib.benchmarks",
    "rllib.conftest",
    "rllib.tuned_examples",
    "tune.impl.test_utils",
    "tune.utils.release_test_util",
)
_LEFT_OUT_FOLDERS = ("tests", "benchmarks")
#: Parts of libraries that belong to another one, and are taken with that.
_OF_ANOTHER = ("data.llm", "serve.llm")

#: Modules of Oxiray's that only refuse or answer "no": the wheel's go before them where they are installed.
REPLACING = ("data", "train._internal")
#: Modules of both: what Oxiray's lacks is looked up in the wheel's module of the same name, which is loaded apart.
COMPLETED = (
    "_common.constants",
    "_common.network_utils",
    "_common.ray_constants",
    "_common.signature",
    "_common.test_utils",
    "_common.utils",
    "_private.ray_constants",
    "train.constants",
    "train.v2._internal.constants",
)
#: Extensions of files that are taken: modules, and the templates that they fill in.
_EXTENSIONS = (".py", ".j2", ".json", ".tmpl")


def closed(libraries: Iterable[str]) -> tuple[str, ...]:
    """The libraries with those that they need, in alphabetical order. Raises `ValueError` for an unknown one."""
    found: set[str] = set()
    waiting = list(libraries)
    while waiting:
        name = waiting.pop()
        if name not in LIBRARIES:
            raise ValueError(f"{name!r} is no library of Ray's that Oxiray can take over: there are {', '.join(sorted(LIBRARIES))}")
        if name not in found:
            found.add(name)
            waiting.extend(LIBRARIES[name][1])
    return tuple(sorted(found))


def prefixes(libraries: Iterable[str]) -> tuple[str, ...]:
    """The modules, each with all below it, that these libraries consist of; none where no library needs a file."""
    own = [prefix for name in closed(libraries) for prefix in LIBRARIES[name][0]]
    return tuple(sorted({*own, *_COMMON})) if own else ()


def module_of(path: str) -> str:
    """The module that a file of the wheel is, without `ray.`: `ray/data/__init__.py` is `data`; of other files, the folder's."""
    folder, _, name = path.removeprefix("ray/").rpartition("/")
    stem, _, extension = name.rpartition(".")
    parts = folder.split("/") if folder else []
    return ".".join(parts if stem == "__init__" or extension != "py" else [*parts, stem])


def is_below(module: str, prefixes: Iterable[str]) -> bool:
    """Whether a module is one of these, or below one."""
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


@functools.cache
def is_own(module: str) -> bool:
    """Whether Oxiray has a module of this name, which goes before the wheel's."""
    here = Path(__file__).parent.parent.joinpath(*module.split("."))
    return not is_below(module, REPLACING) and (here.with_suffix(".py").is_file() or (here / "__init__.py").is_file())


def is_taken(path: str, taken: Iterable[str]) -> bool:
    """Whether a file of the official wheel belongs to these modules."""
    if not path.startswith("ray/") or not path.endswith(_EXTENSIONS):
        return False
    module = module_of(path)
    if is_below(module, LEFT_OUT) or set(module.split(".")) & set(_LEFT_OUT_FOLDERS):
        return False
    if any(is_below(module, (part,)) and part not in taken for part in _OF_ANOTHER):
        return False
    is_parent = path.endswith("__init__.py") and any(one.startswith(f"{module}.") for one in taken)
    is_loaded = not path.endswith(".py") or module in COMPLETED or not is_own(module)
    return is_loaded and (is_parent or is_below(module, taken))
