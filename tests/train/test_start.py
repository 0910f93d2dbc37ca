"""How workers come to be: ranks by machine, modules they are forked with, other backends, machines that are lost."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import networks
import numpy
import pytest
import ray
import torch
from oxiray.train._imports import learned
from ray import train
from ray.cluster_utils import Cluster
from ray.train import Checkpoint, ScalingConfig
from ray.train.backend import Backend, BackendConfig
from ray.train.torch import TorchConfig, TorchTrainer, get_device, get_devices
from ray.train.v2.jax import JaxConfig, JaxTrainer
from oxiray.util import drain
from watching import wait_until

STAND_INS = Path(__file__).parent / "stand_ins"


@pytest.fixture
def machines(request: pytest.FixtureRequest) -> Cluster:
    """A cluster whose head has no CPU for workers; machines are added by the test."""
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    request.addfinalizer(cluster.shutdown)
    request.addfinalizer(ray.shutdown)
    ray.init(address=cluster.address)
    return cluster


def test_what_a_function_imports_is_learned() -> None:
    def inner() -> Any:
        import numpy as array

        return array

    def outer() -> Any:
        return inner()

    def by_closure() -> Any:
        return torch.ones(1), numpy

    def imports_late() -> None:
        for _ in range(2):
            from torch.nn import Linear  # noqa: F401

    assert learned(outer) == ["numpy"]
    assert learned(by_closure) == ["numpy", "torch"]
    assert learned(imports_late) == ["torch"]
    assert learned(lambda: os.getpid()) == []
    assert learned(networks.train_with_checkpoints) == ["torch"]
    assert learned(print) == []


def test_what_is_preloaded_can_be_chosen(fit) -> None:
    def function() -> bool:
        return "torch" in sys.modules and any("libtorch_cpu" in line for line in Path("/proc/self/maps").read_text().splitlines())

    assert fit(function, 1, environment={"preload": ["torch"]}).return_value
    assert not fit(function, 1).return_value, "nothing names it, so nothing imports it"


def test_a_restart_does_not_import_again(fit, tmp_path: Path) -> None:
    def function() -> bool:
        # Processes that are forked from one that has imported it have the module at the same place.
        template = f"{os.getppid()} {id(sys.modules['torch'])}"
        died = tmp_path / "died"
        train.report({})
        if not died.exists():
            train.collective.barrier()
            died.write_text(template)
            os._exit(1)
        return template == died.read_text()

    fit(lambda: None, trainer=TorchTrainer, name="warm")
    result = fit(function, trainer=TorchTrainer, failures=1)
    assert result.return_value, "the new processes are forked from what has imported PyTorch before"


def test_ranks_of_a_machine_follow_each_other(fit, machines: Cluster) -> None:
    for _ in range(3):
        machines.add_node(num_cpus=2)
    seen: list[dict[str, Any]] = []

    class Noting(train.UserCallback):
        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            seen.extend(metrics)

    def function() -> None:
        context = train.get_context()
        train.report(
            {
                "node": ray.get_runtime_context().get_node_id(), "rank": context.get_world_rank(),
                "place": (context.get_node_rank(), context.get_local_rank(), context.get_local_world_size()),
            }
        )  # fmt: skip

    fit(function, scaling=ScalingConfig(num_workers=6, placement_strategy="SPREAD"), callbacks=[Noting()])
    assert [one["rank"] for one in seen] == list(range(6))
    assert [one["place"] for one in seen] == [(node, local, 2) for node in range(3) for local in range(2)]
    assert len({one["node"] for one in seen}) == 3
    assert all(seen[2 * node]["node"] == seen[2 * node + 1]["node"] for node in range(3))


def test_each_worker_knows_its_own_of_the_machines_devices(fit, request: pytest.FixtureRequest) -> None:
    """With devices in name only: which are whose is arithmetic, and nothing is run on them."""
    ray.shutdown()
    request.addfinalizer(ray.shutdown)
    ray.init(num_cpus=4, num_gpus=4)
    told: list[Any] = []

    class Noting(train.UserCallback):
        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            told[:] = [(one["visible"], one["devices"], one["ids"]) for one in metrics]

    def function() -> None:
        assert get_device() == get_devices()[0]
        devices = [str(one) for one in get_devices()]
        train.report({"visible": os.environ["CUDA_VISIBLE_DEVICES"], "devices": devices, "ids": ray.get_gpu_ids()})

    for number, (workers, each, seen) in enumerate(
        [
            (2, {"GPU": 1}, [("0,1", ["cuda:0"], [0]), ("0,1", ["cuda:1"], [1])]),
            (2, {"GPU": 2}, [("0,1,2,3", ["cuda:0", "cuda:1"], [0, 1]), ("0,1,2,3", ["cuda:2", "cuda:3"], [2, 3])]),
            (3, {"GPU": 0.5, "CPU": 1}, [("0,1", ["cuda:0"], [0]), ("0,1", ["cuda:0"], [0]), ("0,1", ["cuda:1"], [1])]),
        ]
    ):
        # What the group before held comes back as its processes end.
        wait_until(lambda: ray.available_resources().get("GPU") == 4)
        scaling = train.ScalingConfig(num_workers=workers, use_gpu=True, resources_per_worker=each)
        options = {"torch_config": TorchConfig(backend="gloo"), "name": str(number), "callbacks": [Noting()]}
        fit(function, trainer=TorchTrainer, scaling=scaling, **options)
        assert told == seen


def test_an_elastic_group_waits_for_machines_and_says_so(fit, machines: Cluster, capfd) -> None:
    said: list[str] = []
    begun = time.monotonic()
    heard_after: list[float] = []

    def listen() -> None:
        while not heard_after and time.monotonic() - begun < 60:
            said.append(capfd.readouterr().err)
            if "waiting for machines to join" in "".join(said):
                heard_after.append(time.monotonic() - begun)
            time.sleep(0.05)
        machines.add_node(num_cpus=2)

    listener = threading.Thread(target=listen)
    listener.start()
    result = fit(lambda: train.get_context().get_world_size(), scaling=ScalingConfig(num_workers=(2, 4)))
    listener.join()
    assert heard_after, "".join(said)
    assert "bundle 0, {CPU: 1}: it has no CPU, and 1 is asked for" in "".join(said), "which worker lacks what where"
    assert result.return_value == 2


def test_an_elastic_group_that_does_not_fit_as_it_is_to_be_placed_becomes_smaller(fit, machines: Cluster, capfd) -> None:
    for _ in range(2):
        machines.add_node(num_cpus=1)
    scaling = ScalingConfig(num_workers=(1, 2), placement_strategy="STRICT_PACK")
    assert fit(lambda: train.get_context().get_world_size(), scaling=scaling).return_value == 1
    said = capfd.readouterr().err
    assert "2 workers of {'CPU': 1} are not placed after 2 s" in said and "trying with fewer" in said


def test_a_machine_that_is_lost_is_done_without(fit, machines: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy machine may take a while to give a place to what fits.
    monkeypatch.setattr("oxiray.train._controller._FITS_S", 10.0)
    first, second = machines.add_node(num_cpus=2), machines.add_node(num_cpus=2)
    sizes: list[int] = []

    class Removing(train.UserCallback):
        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            sizes.append(len(metrics))
            if len(sizes) == 2:
                machines.remove_node(second, allow_graceful=False)

    scaling = ScalingConfig(num_workers=(2, 4))
    config = {"steps": 5}
    result = fit(
        networks.train_with_checkpoints, trainer=TorchTrainer, scaling=scaling, config=config, failures=2, callbacks=[Removing()]
    )
    assert sizes[:2] == [4, 4] and sizes[-1] == 2
    assert [row["step"] for row in result.history] == list(range(5))
    assert networks.differ(result.return_value, networks.alone(5)) < 1e-6
    assert first is not second


def test_a_backend_of_the_programs_own(fit, tmp_path: Path) -> None:
    class Meeting(Backend):
        def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
            pids = worker_group.execute(os.getpid)
            assert len(pids) == len(worker_group) == len(set(pids)) == 2
            assert worker_group.execute_single(1, os.getpid) == pids[1]
            assert worker_group.get_resources_per_worker() == {"CPU": 1}
            worker_group.execute(lambda: os.environ.update(MET=str(pids[0])))

        def on_training_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
            assert worker_group.execute(lambda: train.get_context().get_world_rank()) == [0, 1]

        def on_shutdown(self, worker_group: Any, backend_config: BackendConfig) -> None:
            (tmp_path / "shut").touch()

    class MeetingConfig(BackendConfig):
        @property
        def backend_cls(self) -> type[Backend]:
            return Meeting

    def function() -> tuple[str, int]:
        return os.environ["MET"], os.getpid()

    met, own = fit(function, backend_config=MeetingConfig()).return_value
    assert met == str(own)
    assert (tmp_path / "shut").exists()


def test_a_backend_is_told_of_the_end_of_every_attempt(fit, tmp_path: Path) -> None:
    """What it keeps in the controller, as a tracker, is let go of after a failure too; what it raises then hides nothing."""

    class Tracking(Backend):
        def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
            (tmp_path / "attempts").open("a").write("begun\n")

        def on_shutdown(self, worker_group: Any, backend_config: BackendConfig) -> None:
            assert worker_group.execute_single(1, lambda: 3) == 3
            (tmp_path / "attempts").open("a").write(f"failed={worker_group.has_failed}\n")
            if worker_group.has_failed:
                raise ValueError("the tracker is gone")

    class TrackingConfig(BackendConfig):
        @property
        def backend_cls(self) -> type[Backend]:
            return Tracking

    def function() -> str:
        if train.get_context().get_world_rank() == 0 and len((tmp_path / "attempts").read_text().split()) == 1:
            raise RuntimeError("the first attempt fails")
        return "trained"

    assert fit(function, backend_config=TrackingConfig(), failures=1).return_value == "trained"
    assert (tmp_path / "attempts").read_text().split() == ["begun", "failed=True", "begun", "failed=False"]


@pytest.mark.parametrize("config", [TorchConfig(), JaxConfig()])
def test_ranks_are_not_asked_to_leave_together_after_one_failed(config: BackendConfig) -> None:
    class Failed:
        has_failed = True

        def __len__(self) -> int:
            return 2

        def execute(self, *args: Any) -> None:
            raise AssertionError("the rank that failed never comes")

    config.backend_cls().on_shutdown(Failed(), config)


def test_jax_is_told_who_is_who(fit) -> None:
    """With a module that stands in for JAX and notes what it is asked for."""

    def function() -> list[Any]:
        import jax

        asked = dict(jax.distributed.asked)
        host, _, port = asked.pop("coordinator_address").rpartition(":")
        assert host and int(port)
        return [asked, train.collective.broadcast_from_rank_zero(jax.distributed.asked["coordinator_address"]).endswith(port)]

    environment = {"env_vars": {"PYTHONPATH": str(STAND_INS)}, "py_modules": [str(STAND_INS / "jax")]}
    result = fit(function, trainer=JaxTrainer, environment=environment)
    assert result.return_value == [{"num_processes": 2, "process_id": 0}, True]
    with pytest.raises(ValueError, match="JaxConfig"):
        JaxTrainer(print, jax_config=JaxConfig)


class Draining(train.UserCallback):
    """Drains a machine after the second report."""

    def __init__(self, deadline_s: float | None) -> None:
        self.deadline_s = deadline_s
        self.nodes: list[str] = []

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        self.nodes.append(metrics[0]["node"])
        if len(self.nodes) == 2:
            drain.drain_node(self.nodes[0], deadline_s=self.deadline_s, reason="spot notice")


def test_a_group_moves_from_a_drained_machine_after_a_checkpoint(fit, machines: Cluster, tmp_path: Path) -> None:
    for _ in range(2):
        machines.add_node(num_cpus=2)

    def function() -> int:
        begun = train.get_checkpoint()
        step = int(Path(begun.path, "step").read_text()) if begun else 0
        node = ray.get_runtime_context().get_node_id()
        while step < 40:
            step += 1
            own = tmp_path / f"own-{train.get_context().get_world_rank()}"
            own.mkdir(exist_ok=True)
            (own / "step").write_text(str(step))
            info = train.get_preemption_info()
            assert info is None or (info.preempted_node_ids == [node] and info.deadline_ms > time.time() * 1000)
            train.report({"step": step, "node": node, "noticed": info is not None}, checkpoint=Checkpoint.from_directory(own))
            # The notice comes before the last step.
            if begun is None and step == 20:
                wait_until(lambda: train.get_preemption_info() is not None)
        return step

    draining = Draining(600)
    result = fit(function, callbacks=[draining])
    assert result.return_value == 40
    assert [row["step"] for row in result.history] == list(range(1, 41)), "nothing was lost and nothing done twice"
    assert len(set(draining.nodes)) == 2 and draining.nodes[-1] != draining.nodes[0]


def test_a_machine_that_was_drained_under_a_group_is_no_failure(fit, machines: Cluster, tmp_path: Path) -> None:
    for _ in range(2):
        machines.add_node(num_cpus=2)

    def function() -> str:
        node = ray.get_runtime_context().get_node_id()
        for _ in range(2):
            train.report({"node": node})
        marker = tmp_path / f"rank-{train.get_context().get_world_rank()}"
        if not marker.exists():
            # Whoever is on the machine that is drained is still there when it ends.
            marker.touch()
            threading.Event().wait()
        return node

    draining = Draining(0.3)
    result = fit(function, callbacks=[draining])
    assert result.return_value != draining.nodes[0], "max_failures is 0, and still it went on elsewhere"
