"""Init and shutdown: how a program starts, and what it may say."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import ray

Start = Callable[..., Any]


def test_a_cluster_from_start_to_end(start: Start) -> None:
    context = start(num_cpus=3, num_gpus=1, resources={"widget": 2}, labels={"zone": "a"}, namespace="named")
    assert ray.is_initialized()
    total = ray.cluster_resources()
    assert (total["CPU"], total["GPU"], total["widget"]) == (3.0, 1.0, 2.0)
    assert ray.nodes()[0]["Labels"]["zone"] == "a"
    assert ray.get_runtime_context().namespace == "named"
    assert context.address_info["node_id"] == ray.get_runtime_context().get_node_id()
    assert context["address"] == context.address_info["address"]
    assert os.path.isdir(context.address_info["session_dir"])
    ray.shutdown()
    assert not ray.is_initialized()


def test_shutdown_twice_is_fine() -> None:
    ray.shutdown()
    ray.shutdown()


def test_a_context_ends_with_its_block(start: Start) -> None:
    with start(num_cpus=1):
        assert ray.is_initialized()
    assert not ray.is_initialized()


def test_put_connects_by_itself(run_program: Callable[..., "subprocess.CompletedProcess[str]"]) -> None:
    done = run_program("import ray\nprint(ray.get(ray.put(5)), ray.is_initialized())\n")
    assert done.stdout.split() == ["5", "True"], done.stderr


def test_references_of_an_ended_session_are_unknown(start: Start) -> None:
    start(num_cpus=1)
    reference = ray.put(1)
    ray.shutdown()
    start(num_cpus=1)
    with pytest.raises((ValueError, ray.exceptions.RayError)):
        ray.get(reference, timeout=5)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"num_cpus": -1}, ValueError),
        ({"no_such_option": 1}, RuntimeError),
        ({"object_store_memory": 5}, ValueError),
        ({"resources": {"CPU": 1}}, (ValueError, AssertionError)),
        ({"namespace": ""}, ValueError),
        ({"namespace": 5}, TypeError),
        ({"runtime_env": {"env_vars": {"A": 1}}}, TypeError),
        ({"local_mode": True}, RuntimeError),
    ],
)
def test_what_init_refuses(options: dict, error: Any) -> None:
    ray.shutdown()
    with pytest.raises(error):
        ray.init(include_dashboard=False, **options)
    ray.shutdown()


def test_labels_of_the_machine_come_from_variables(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "RAY_NODE_MARKET_TYPE": ("ray.io/market-type", "spot"),
        "RAY_NODE_TYPE_NAME": ("ray.io/node-group", "group"),
        "RAY_NODE_REGION": ("ray.io/availability-region", "region"),
        "RAY_NODE_ZONE": ("ray.io/availability-zone", "zone"),
    }
    for name, (_, value) in given.items():
        monkeypatch.setenv(name, value)
    start(num_cpus=1)
    labels = ray.nodes()[0]["Labels"]
    assert {label: labels.get(label) for label, _ in given.values()} == dict(given.values())


def test_a_label_of_the_machine_names_the_accelerator_that_it_declares(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v4-16")
    start(num_cpus=1, resources={"TPU": 4})
    assert ray.nodes()[0]["Labels"]["ray.io/accelerator-type"] == "TPU-V4"
    assert ray.cluster_resources()["accelerator_type:TPU-V4"] == 1.0


def test_the_temporary_folder_has_the_session(start: Start, tmp_path_factory: Any) -> None:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="rt-") as folder:
        context = start(num_cpus=1, _temp_dir=folder)
        assert context.address_info["session_dir"].startswith(folder)
        ray.shutdown()


def test_a_job_has_the_metadata_of_its_configuration(start: Start) -> None:
    start(num_cpus=1, job_config=ray.job_config.JobConfig(metadata={"key": "value"}, ray_namespace="of-the-job"))
    assert ray.get_runtime_context().namespace == "of-the-job"


def test_programs_are_apart_where_they_name_no_cluster(
    start: Start, run_program: Callable[..., "subprocess.CompletedProcess[str]"]
) -> None:
    context = start(num_cpus=1)
    done = run_program("import ray\nprint(ray.init(address='local', num_cpus=1).address_info['address'])\n")
    assert done.stdout.strip() != context.address_info["address"], done.stderr


def test_another_program_joins_by_address(
    start: Start, run_program: Callable[..., "subprocess.CompletedProcess[str]"]
) -> None:
    context = start(num_cpus=1, namespace="shared")

    @ray.remote
    class Kept:
        def value(self) -> int:
            return 7

    kept = Kept.options(name="kept").remote()
    assert ray.get(kept.value.remote()) == 7
    done = run_program(
        f"import ray\nray.init(address={context.address_info['address']!r}, namespace='shared')\n"
        "print(ray.get(ray.get_actor('kept').value.remote()))\n"
    )
    assert done.stdout.split() == ["7"], done.stderr
    assert "Connecting to existing Ray cluster at address: " in done.stderr
    assert "Connected to Ray cluster." in done.stderr


def test_actors_of_a_program_end_with_it(
    start: Start, run_program: Callable[..., "subprocess.CompletedProcess[str]"], eventually: Callable[..., Any]
) -> None:
    context = start(num_cpus=1, namespace="shared")
    address = context.address_info["address"]
    program = (
        f"import ray\nray.init(address={address!r}, namespace='shared')\n"
        "class A:\n    def f(self): pass\n"
        "a = ray.remote(A).options(name='theirs', lifetime={lifetime}).remote()\nray.get(a.f.remote())\n"
    )
    assert run_program(program.replace("{lifetime}", "None")).returncode == 0

    def is_gone() -> bool:
        try:
            ray.get_actor("theirs")
        except ValueError:
            return True
        return False

    eventually(is_gone)
    assert run_program(program.replace("{lifetime}", "'detached'")).returncode == 0
    ray.kill(ray.get_actor("theirs"))


def test_children_that_end_vanish_where_that_is_asked_for(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper", "true")
    start(num_cpus=1)

    @ray.remote
    def leave_a_child() -> bool:
        import time

        child = subprocess.Popen(["true"])
        deadline = time.monotonic() + 20
        while os.path.exists(f"/proc/{child.pid}") and time.monotonic() < deadline:
            time.sleep(0.01)
        return os.path.exists(f"/proc/{child.pid}")

    assert ray.get(leave_a_child.remote()) is False


def test_the_version_is_that_of_ray() -> None:
    assert ray.__version__ == "2.60.0"
