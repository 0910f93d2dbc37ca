"""Addresses: how `init` finds the cluster, and the sizes that it takes."""

import os
import subprocess
import sys

import pytest
import ray


def test_facts_of_the_connection(start):
    context = start(num_cpus=1)
    assert set(context.keys()) >= {"address", "node_id", "session_dir", "redis_address", "object_store_address", "raylet_socket_name", "metrics_export_port", "dashboard_agent_listen_port", "gcs_address"}
    assert dict(context.items())["address"] == context["address"] == context.address_info["address"]
    assert context["redis_address"] is None
    assert len(list(context.values())) == len(context)
    assert context.get("no such fact", 7) == 7
    assert context.ray_version == ray.__version__


def test_memory_may_be_a_fraction(start):
    start(num_cpus=1, _memory=1e9 + 0.7)
    assert ray.cluster_resources()["memory"] == 10**9


def test_a_tasks_memory_may_be_a_fraction(start):
    start(num_cpus=1, _memory=1000)

    @ray.remote(memory=2.9)
    def held():
        return ray.get_runtime_context().get_assigned_resources()

    assert ray.get(held.remote())["memory"] == 2


def test_counts_of_processors_are_whole(start):
    with pytest.raises(ValueError):
        start(num_cpus=1.5)


def test_the_context_connects():
    program = "import ray; ray.get_runtime_context(); print('connected', ray.is_initialized())"
    variables = {**os.environ, "RAY_ADDRESS": ""}
    ran = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, timeout=120, check=False)
    assert "connected True" in ran.stdout, ran.stderr


def test_the_variable_wins_over_auto(start, run_program):
    address = start(num_cpus=1)["address"]
    program = f"import ray; print('at', ray.init('auto')['address'] == {address!r})"
    assert "at True" in run_program(program, RAY_ADDRESS=address).stdout
