"""Workers on hosts with addresses of their own: the process group spans them, and so do checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Hosts

PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
import networks, ray, torch
from ray import train
from ray.train.torch import TorchTrainer
ray.init(address="auto")
places = []
class Noting(train.UserCallback):
    def after_report(self, run_context, metrics, checkpoint):
        places[:] = [one.get("node") for one in metrics]
def function(config):
    weights = networks.train_with_checkpoints(config)
    train.report({{"node": ray.util.get_node_ip_address()}})
    return weights
result = TorchTrainer(
    function, train_loop_config={{"steps": 4}},
    scaling_config=train.ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD"),
    run_config=train.RunConfig(name="hosts", storage_path={storage!r}, callbacks=[Noting()]),
).fit()
assert networks.differ(result.return_value, networks.alone(4)) < 1e-6
assert len(result.best_checkpoints) == 4
print(sorted(places))
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Two hosts in one cluster."""
    if os.geteuid() != 0:
        pytest.skip("hosts of their own are network namespaces, which only root can make: run these tests as root")
    made = Hosts(tmp_path, count=2, lease=20.0)
    try:
        made.start(0, "--num-cpus=1")
        made.start(1, "--num-cpus=1")
        yield made
    finally:
        made.end()


def test_ranks_on_two_hosts_learn_what_one_process_learns(hosts: Hosts, tmp_path: Path) -> None:
    program = PROGRAM.format(tests=str(Path(__file__).parent), storage=str(tmp_path / "shared"))
    assert hosts.program(program).splitlines()[-1] == "['10.77.0.1', '10.77.0.2']"
