"""What a worker does to be in its runtime environment: folders, modules, the hook, the number of threads.

Invariant: it runs after the worker's variables are set, so that nothing here sees another task's devices.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

from oxiray._environment import packages_of

#: How many steps of a traceback an error shows.
_TRACE_LINES = 10

_applied: str | None = None


def settled(fields: str, variables: dict[str, str]) -> dict[str, Any]:
    """The environment that tasks made here start from."""
    environment = json.loads(fields) if fields else {}
    if variables:
        environment["env_vars"] = variables
    return environment


def apply(fields: str, session: str) -> str | None:
    """Takes the environment on, once; returns what is wrong with it, or None."""
    global _applied
    if fields == _applied:
        return None
    try:
        _apply(json.loads(fields) if fields else {}, Path(session))
    except BaseException as error:
        # What the user's code raised tells more than how it was called from here.
        trace = "".join(traceback.format_exception(error.__cause__ or error)[-_TRACE_LINES:])
        return f"a worker could not take on its runtime_env: {error}\n{trace}"
    _applied = fields
    return None


def import_what_the_driver_does(paths: list[str], libraries: list[str]) -> None:
    """Adds the driver's import path to this process's.

    Of `libraries`, the folders of packages among `paths`, those that this interpreter does not search by itself belong to the
    driver's interpreter: they come last, so that an environment's own packages win over them.
    """
    others = [path for path in paths if path not in set(sys.path)]
    sys.path[:] = [
        *(path for path in others if path not in libraries), *sys.path, *(path for path in others if path in libraries)
    ]  # fmt: skip


def _apply(environment: dict[str, Any], session: Path) -> None:
    places: list[Path] = []
    if names := packages_of(environment):
        from oxiray import _environment_packages as packages

        places = [packages.present(session, name) for name in names]
    if environment.get("working_dir"):
        os.chdir(places[0])
    own = [str(place) for place in places]
    sys.path[:] = [*own, *(path for path in sys.path if path not in own)]
    importlib.invalidate_caches()
    if own:
        # Processes that the task starts import the same.
        paths = [*own, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    if environment.get("preload"):
        from oxiray import _preload

        _preload.finish(environment["preload"])
    if hook := environment.get("worker_process_setup_hook"):
        _run_hook(hook)


def _run_hook(hook: Any) -> None:
    if isinstance(hook, dict):
        function = pickle.loads(base64.b64decode(hook["pickle"]))
        name = hook["name"]
    else:
        name = hook
        module, _, attribute = hook.rpartition(".")
        if not module:
            raise ValueError(f"the worker_process_setup_hook {hook!r} names no module: write it as 'module.function'")
        function = getattr(importlib.import_module(module), attribute)
    try:
        function()
    except BaseException as error:
        raise RuntimeError(f"the worker_process_setup_hook {name} raised {type(error).__name__}: {error}") from error
