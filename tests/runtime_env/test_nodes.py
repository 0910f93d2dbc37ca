"""Environments on a node that is not the driver's own."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
import ray
from oxiray import _worker
from ray.cluster_utils import Cluster

pytestmark = pytest.mark.timeout(100)


@pytest.mark.parametrize("over_network", [False, True], ids=["socket", "network"])
def test_an_environment_is_there_on_every_node(place, wheels, tmp_path, over_network) -> None:
    (tmp_path / "own_module.py").write_text("VALUE = 41\n")
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1}, over_network=over_network)
    try:
        cluster.add_node(num_cpus=1, resources={"member": 4})
        cluster.connect()

        @ray.remote(resources={"member": 1})
        def look():
            import own_module

            return own_module.VALUE, ray.get_runtime_context().get_node_id(), sys.executable

        @ray.remote(resources={"member": 1})
        def version():
            import tinyone

            return tinyone.VERSION

        member = next(node["NodeID"] for node in ray.nodes() if node["Resources"].get("member"))
        for more in ({}, {"preload": ["own_module"]}):
            asked = {"working_dir": str(tmp_path), **more}
            assert ray.get(look.options(runtime_env=asked).remote(), timeout=60)[:2] == (41, member)
        assert ray.get(version.options(runtime_env=wheels.pip("tinyone==2.0")).remote(), timeout=90) == "2.0"
    finally:
        cluster.shutdown()


ELSEWHERE = """
import sys
import ray
here, sys.executable = sys.executable, sys.argv[2]
ray.init(address=sys.argv[1])

@ray.remote(max_retries=0)
def interpreter():
    return sys.executable

for name in sys.argv[3:]:
    try:
        assert ray.get(interpreter.options(resources={name: 1}).remote(), timeout=60) == here
        print(name, "serves", flush=True)
    except ray.exceptions.RayError as error:
        print(name, error, flush=True)
"""


@pytest.mark.parametrize("is_there", [False, True], ids=["missing", "bare"])
def test_a_node_without_the_interpreter_has_its_own_stand_in_or_says_what_is_missing(tmp_path, is_there) -> None:
    """The program's interpreter is not there, or is there and knows nothing of Oxiray."""
    asked, missing = "/elsewhere/python", "/elsewhere/python"
    if is_there:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
        asked, missing = str(tmp_path / "bare" / "bin" / "python"), "No module named 'oxiray'"
    ray.shutdown()
    cluster = Cluster(initialize_head=True)
    try:
        cluster.add_node(resources={"with": 1}, env_vars={"OXIRAY_INTERPRETER": sys.executable})
        lacking = cluster.add_node(resources={"without": 1}, env_vars={"OXIRAY_INTERPRETER": ""})
        command = [sys.executable, "-c", ELSEWHERE, str(cluster.address), asked, "with", "without"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
        assert done.returncode == 0, done.stderr
        first, _, rest = done.stdout.partition("\n")
        assert first == "with serves", done.stdout
        assert missing in rest and lacking.node_id in rest, rest
    finally:
        cluster.shutdown()


def test_patch_levels_of_python_may_differ_and_nothing_more() -> None:
    own = platform.python_version_tuple()
    assert _worker._wrong_version(f"{own[0]}.{own[1]}.99", "/there/python") is None
    told = _worker._wrong_version(f"{own[0]}.{int(own[1]) + 1}.0", "/there/python")
    assert told is not None and "/there/python" in told and platform.python_version() in told
