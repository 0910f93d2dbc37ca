"""Every module that programs import is there under both names, and every name that is not says why."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import threading

import oxiray
import pytest
import ray
import ray._private.worker
import ray.util.client
import ray.util.client.common
from oxiray import _missing
from oxiray._alternatives import ALTERNATIVES

MODULES = """
_private _private.services _private.state _private.utils _private.worker _raylet actor cloudpickle dag data exceptions
experimental experimental.internal_kv job_config remote_function runtime_context runtime_env types util util.accelerators
util.accelerators.accelerators util.actor_pool util.annotations util.check_serialize util.collective util.collective.types
util.collective.collective_group.base_collective_group util.client util.client.common
util.debug util.helpers util.joblib util.multiprocessing util.multiprocessing.pool util.queue
train train.backend train.collective train.constants train.v2.api.data_parallel_trainer train.v2._internal.constants
train.v2.jax util.scheduling_strategies util.serialization util.state util.state.api util.state.common util.state.exception util.tpu
""".split()


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_there_under_both_names(name: str) -> None:
    assert importlib.import_module(f"ray.{name}") is importlib.import_module(f"oxiray.{name}")


def test_submodules_are_reached_as_attributes() -> None:
    program = "import {0} as ray; print(ray.util.queue.Queue.__name__, ray._private.worker.global_worker.connected)"
    for root in ("ray", "oxiray"):
        done = subprocess.run([sys.executable, "-c", program.format(root)], capture_output=True, text=True, check=False)
        assert done.stdout == "Queue False\n", done.stderr


def statement(code: str) -> str:
    with pytest.raises((ImportError, AttributeError)) as caught:
        exec(code, {"ray": ray, "oxiray": oxiray})
    return f"{type(caught.value).__name__}: {caught.value}"


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        ("import ray.rllib", "ModuleNotFoundError", "oxiray ray install \"rllib\""),
        ("import oxiray.rllib", "ModuleNotFoundError", "oxiray ray install \"rllib\""),
        ("from ray import serve", "ModuleNotFoundError", "oxiray ray install \"serve\""),
        ("from oxiray import serve", "ImportError", "oxiray ray install \"serve\""),
        ("ray.tune", "AttributeError", "oxiray ray install \"tune\""),
        ("oxiray.tune", "AttributeError", "oxiray ray install \"tune\""),
        ("import ray.util.ray_debugpy", "ModuleNotFoundError", "oxiray debug"),
        ("import ray.util.spark", "ModuleNotFoundError", "oxiray start"),
        ("from ray.util.client.worker import Worker", "ModuleNotFoundError", "Ray deprecates"),
        ("import ray.data.preprocessors", "ModuleNotFoundError", "oxiray ray install \"data\""),
        ("import ray.train.xgboost", "ModuleNotFoundError", "oxiray ray install \"train\""),
        ("import ray.llm", "ModuleNotFoundError", "oxiray ray install \"llm\""),
        ("from ray.train.context import TrainContext", "ModuleNotFoundError", "in ray.train"),
        ("from ray.air import session", "ModuleNotFoundError", "ray.train"),
        ("from ray.train import torsh", "ImportError", "check the spelling"),
        ("from ray.util.queue import Fool", "ImportError", "check the spelling"),
        ("from ray._private.worker import connect", "ImportError", "private to Ray"),
        ("ray._private.worker.global_worker.raylet_client", "AttributeError", "private to Ray"),
        ("import oxiray.no_such_module", "ModuleNotFoundError", "No module named"),
    ],
)
def test_what_is_missing_says_why(code: str, kind: str, says: str) -> None:
    said = statement(code)
    assert said.startswith(f"{kind}: ")
    assert says in said


def test_asking_does_not_raise() -> None:
    assert not hasattr(ray.util, "spark")
    assert getattr(oxiray, "tune", None) is None
    assert importlib.util.find_spec("oxiray.tune") is None
    assert importlib.util.find_spec("ray.util.spark") is None


def test_the_record_of_rays_names() -> None:
    known = _missing.names_of_ray()
    assert {"get", "put", "remote", "timeline"} <= known["ray"]
    assert {"list_actors", "summarize_tasks"} <= known["ray.util.state"]
    assert "_internal_kv_put" in known["ray.experimental.internal_kv"]
    assert _missing.is_of_ray("util.queue")
    assert _missing.is_of_ray("util.queue.Queue")
    assert not _missing.is_of_ray("util.queue.Fool")


def test_every_alternative_is_of_a_name_that_ray_has() -> None:
    known = {*_missing.names_of_ray(), "ray._private", "ray._raylet", "ray._config", "ray.experimental.state"}
    unknown = [name for name in ALTERNATIVES if f"ray.{name}" not in known and not _missing.is_of_ray(name)]
    # Names that modules of Ray import from each other, and packages within a library, are not in the record.
    assert unknown[0] == "actor.AsyncioActorExit"
    assert unknown[1:] == ["air.session", "data.llm", "serve.llm"]


def test_ray_client_is_never_in_use() -> None:
    assert ray.util.client.ray.is_connected() is False
    assert ray.util.client.num_connected_contexts() == 0
    assert not isinstance(ray.ObjectRef.nil(), ray.util.client.common.ClientObjectRef)
    with pytest.raises(NotImplementedError, match="Ray deprecates"):
        ray.util.client.common.ClientObjectRef(b"")
    with pytest.raises(AttributeError, match="`connect` was asked for"):
        ray.util.client.ray.connect("localhost:10001")


def test_small_public_names() -> None:
    from enum import Enum

    accelerators = importlib.import_module("ray.util.accelerators.accelerators")
    kinds = Enum("kinds", {name: value for name, value in vars(accelerators).items() if name == "__getattr__" or name.isupper()})
    assert kinds.NVIDIA_H100.value == "H100"  # type: ignore[attr-defined]
    assert "__getattr__" not in vars(accelerators)
    assert ray.JobID.from_int(3) == ray.JobID.from_hex("03000000")
    assert ray.logger.name == "ray"
    assert ray.runtime_context.RuntimeContext().worker is ray._private.worker.global_worker
    assert [kind[int] for kind in (ray.actor.ActorHandle, ray.actor.ActorMethod)] == [ray.ActorHandle, ray.ActorMethod]

    @ray.util.DeveloperAPI(stability="alpha")
    @ray.util.PublicAPI
    def marked() -> int:
        return 1

    assert marked() == 1
    assert ray.cloudpickle.loads(ray.cloudpickle.dumps_debug(marked))() == 1
    with pytest.raises(TypeError, match="Its part `'lock'`"):
        ray.cloudpickle.dumps_debug({"lock": threading.Lock()})
