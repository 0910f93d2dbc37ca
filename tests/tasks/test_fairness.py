"""Several drivers on one cluster: nobody waits for the end of another's backlog."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster
from watching import wait_until

#: A driver with more tasks than it will ever run; it says when the first is done, and never ends by itself.
BACKLOG = """
import sys, time
from pathlib import Path
import ray

address, begun = sys.argv[1:3]
ray.init(address=address)

@ray.remote
def rest():
    time.sleep(0.05)

tasks = [rest.options(num_cpus=cpus).remote() for cpus in (1, 0.5) for _ in range(50_000)]
ray.get(tasks[0])
Path(begun).touch()
ray.get(tasks)
"""

#: A driver with a few tasks.
FEW = """
import sys
import ray

address, demand, count = sys.argv[1:4]
ray.init(address=address)

@ray.remote
def number(value):
    return value

@ray.remote
class Counter:
    def next(self):
        return 1

demand = eval(demand)
numbers = list(range(int(count)))
assert ray.get([number.options(**demand).remote(value) for value in numbers], timeout=90) == numbers
counter = Counter.options(**demand).remote()
assert ray.get(counter.next.remote(), timeout=90) == 1
"""


@pytest.fixture
def cluster() -> Iterator[Callable[..., Cluster]]:
    """Makes a cluster: the resources of the head, and of each other node."""
    made: list[Cluster] = []

    def make(head: dict, *others: dict) -> Cluster:
        made.append(Cluster(initialize_head=True, head_node_args=head))
        for other in others:
            made[-1].add_node(**other)
        return made[-1]

    yield make
    for one in made:
        one.shutdown()


@pytest.fixture
def backlog(tmp_path: Path) -> Iterator[Callable[[Cluster], subprocess.Popen]]:
    """Starts drivers with a backlog, and ends them."""
    started: list[subprocess.Popen] = []

    def start(cluster: Cluster) -> subprocess.Popen:
        begun = tmp_path / f"begun-{len(started)}"
        started.append(subprocess.Popen([sys.executable, "-c", BACKLOG, str(cluster.address), str(begun)]))
        wait_until(begun.exists)
        return started[-1]

    yield start
    for driver in started:
        driver.kill()
        driver.wait()


def run_few(cluster: Cluster, demand: dict, count: int = 5) -> None:
    """A driver with a few tasks and an actor runs to its end."""
    done = subprocess.run(
        [sys.executable, "-c", FEW, str(cluster.address), repr(demand), str(count)],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_a_second_driver_runs_its_tasks_beside_a_backlog(cluster, backlog) -> None:
    several = cluster({"num_cpus": 2})
    first = backlog(several)
    run_few(several, {"num_cpus": 1})
    # More than any one lease holds.
    run_few(several, {"num_cpus": 2}, count=1)
    assert first.poll() is None, "the backlog is not at its end"


def test_drivers_with_a_backlog_each_leave_room_for_another(cluster, backlog) -> None:
    several = cluster({"num_cpus": 2})
    backlogs = [backlog(several) for _ in range(2)]
    run_few(several, {"num_cpus": 0.5})
    assert [driver.poll() for driver in backlogs] == [None, None]


def test_workers_on_other_nodes_are_given_back_too(cluster, backlog) -> None:
    several = cluster({"num_cpus": 0}, {"num_cpus": 1}, {"num_cpus": 1, "resources": {"there": 10}})
    first = backlog(several)
    run_few(several, {"num_cpus": 1})
    run_few(several, {"num_cpus": 1, "resources": {"there": 1}})
    assert first.poll() is None
