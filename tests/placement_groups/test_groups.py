"""Placement groups themselves: placed whole or not at all, named, listed, ended."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import ray
from oxiray._cli import native_binary
from ray.util import get_placement_group, placement_group, placement_group_table, remove_placement_group
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Within
from watching import wait_until


@pytest.mark.parametrize("strategy", ["PACK", "SPREAD", "STRICT_PACK"])
def test_each_strategy_but_one_can_do_with_one_machine(cluster, strategy) -> None:
    cluster(num_gpus=2)
    group = placement_group([{"CPU": 1, "GPU": 1}, {"CPU": 1}], strategy=strategy)
    assert group.wait(20)
    row = placement_group_table(group)
    assert (row["strategy"], row["state"], row["stats"]["scheduling_state"]) == (strategy, "CREATED", "FINISHED")
    here = ray.nodes()[0]["NodeID"]
    assert row["bundles_to_node_id"] == {0: here, 1: here}
    assert row["bundles"] == {0: {"CPU": 1.0, "GPU": 1.0}, 1: {"CPU": 1.0}}


def test_what_can_never_be_placed_waits_and_says_why(cluster, capfd) -> None:
    cluster()
    for bundles, strategy, words in [
        ([{"CPU": 1}, {"CPU": 1}], "STRICT_SPREAD", "a machine of its own for each of the 2 bundles"),
        ([{"CPU": 1}, {"GPU": 3}], "PACK", "bundle 1 asks for {GPU: 3}"),
        ([{"CPU": 3}, {"CPU": 3}], "PACK", "bundle 1, {CPU: 3}, finds no room beside the bundles before it"),
    ]:
        group = placement_group(bundles, strategy=strategy)
        assert not group.wait(0.05)
        row = placement_group_table(group)
        assert (row["state"], row["stats"]["scheduling_state"]) == ("PENDING", "INFEASIBLE")
        assert words in row["stats"]["reason"]
        assert ray.available_resources()["CPU"] == 4.0, "nothing is held meanwhile"
        seen: list[str] = []

        def told(words: str = words, seen: list[str] = seen) -> bool:
            seen.append("".join(capfd.readouterr()))
            return words in "".join(seen)

        wait_until(told)


def test_label_selectors_choose_machines(cluster) -> None:
    cluster(labels={"zone": "a"})
    assert placement_group([{"CPU": 1}, {"CPU": 1}], bundle_label_selector=[{"zone": "a"}, {"zone": "!b"}]).wait(20)
    elsewhere = placement_group([{"CPU": 1}], bundle_label_selector=[{"zone": "in(b,c)"}])
    assert not elsewhere.wait(0.05)
    assert "`zone` in (b, c)" in placement_group_table(elsewhere)["stats"]["reason"]


def test_groups_that_want_the_same_devices_take_turns(cluster) -> None:
    cluster(num_gpus=4)

    def take(_: int) -> bool:
        group = placement_group([{"GPU": 1}, {"GPU": 2}])
        if not group.wait(30):
            return False
        held = placement_group_table(group)["state"] == "CREATED"
        remove_placement_group(group)
        return held

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(take, range(60)))
    wait_until(lambda: ray.available_resources()["GPU"] == 4.0)


def test_a_group_is_not_passed_by_tasks_that_come_later(cluster) -> None:
    cluster(num_cpus=2)

    @ray.remote
    class Holder:
        def pid(self):
            return os.getpid()

    first = Holder.options(num_cpus=1).remote()
    ray.get(first.pid.remote())
    group = placement_group([{"CPU": 2}])
    later = Holder.options(num_cpus=2).remote()
    ray.kill(first)
    assert group.wait(20)
    answer = later.pid.remote()
    assert ray.wait([answer], timeout=0.2)[0] == []
    remove_placement_group(group)
    assert ray.get(answer, timeout=20)


def test_handles_travel_and_find_their_bundles(cluster) -> None:
    cluster()
    group = placement_group([{"CPU": 1}, {"CPU": 0.5}])
    copy = pickle.loads(pickle.dumps(group))
    assert (copy, hash(copy), copy.bundle_specs) == (group, hash(group), [{"CPU": 1.0}, {"CPU": 0.5}])
    assert (PlacementGroup(group.id).bundle_specs, PlacementGroup(group.id).bundle_count) == (group.bundle_specs, 2)

    @ray.remote(num_cpus=0)
    def look(given):
        return given.wait(10), ray.get(given.ready()).id, given.bundle_count

    assert ray.get(look.remote(group), timeout=20) == (True, group.id, 2)
    assert len(group.id.binary()) == 18 and ray.PlacementGroupID(group.id.binary()) == group.id
    empty = PlacementGroup.empty()
    assert empty.is_empty and not group.is_empty and ray.get(empty.ready()) == empty and empty.bundle_specs == []


def test_names_are_taken_once_and_free_again(cluster) -> None:
    cluster(namespace="ours")
    group = placement_group([{"CPU": 1}], name="train")
    assert get_placement_group("train") == group
    with pytest.raises(ray.exceptions.RaySystemError, match="the name `train` is taken"):
        placement_group([{"CPU": 1}], name="train")
    remove_placement_group(group)
    with pytest.raises(ValueError, match="Failed to look up placement group with name: train"):
        get_placement_group("train")
    assert placement_group([{"CPU": 1}], name="train").wait(20)
    with pytest.raises(ValueError, match="Please supply a non-empty value"):
        get_placement_group("")


def test_the_table_lists_all_and_remembers_the_removed(cluster) -> None:
    cluster()
    groups = [placement_group([{"CPU": 1}], name=f"g{number}") for number in range(3)]
    remove_placement_group(groups[1])
    table = placement_group_table()
    assert {table[group.id.hex()]["state"] for group in (groups[0], groups[2])} == {"CREATED"}
    assert table[groups[1].id.hex()]["state"] == "REMOVED"
    assert "remove_placement_group" in placement_group_table(groups[1])["stats"]["reason"]
    assert placement_group_table(PlacementGroup(ray.PlacementGroupID.from_random())) == {}


REFUSED = [
    ([], {}, "an empty list was given"),
    ("CPU", {}, "must be a list"),
    ([{"CPU": 1}, {}], {}, "bundle 1 .* above zero"),
    ([{"CPU": 0}], {}, "bundle 0 .* above zero"),
    ([{"CPU": -1}], {}, "bundle 0 .* negative"),
    ([{"CPU": 1}, {"CPU": 0.00001}], {}, "bundle 1 .* finer than 0.0001"),
    ([{"GPU": 1.5}], {}, "bundle 0 .*1.5"),
    ([{"CPU": float("nan")}], {}, "bundle 0 .* finite"),
    ([{"bundle": 1}], {}, "bundle 0 .* reserved"),
    ([{"CPU_group_0_ab": 1}], {}, "bundle 0 .* reserved"),
    ([{"CPU": "1"}], {}, "bundle 0 .* numbers"),
    ([["CPU"]], {}, "resource dictionaries.* bundle 0 .*list"),
    ([{"CPU": 1}], {"strategy": "BEST"}, "Invalid placement group strategy BEST"),
    ([{"CPU": 1}], {"lifetime": "forever"}, "lifetime"),
    ([{"CPU": 1}], {"_soft_target_node_id": "ab"}, "STRICT_PACK"),
    ([{"CPU": 1}], {"bundle_label_selector": []}, "They are 0 and 1"),
    ([{"CPU": 1}], {"bundle_label_selector": [{"a": 1}]}, "must be a string"),
    ([{"CPU": 1}] * 1025, {}, "from 1 to 1024 bundles"),
]


@pytest.fixture(scope="module")
def any_cluster():
    ray.shutdown()
    ray.init(num_cpus=1)
    yield
    ray.shutdown()


@pytest.mark.parametrize(("bundles", "options", "words"), REFUSED, ids=[row[2] for row in REFUSED])
def test_what_no_group_may_ask_for_is_refused(any_cluster, bundles, options, words) -> None:
    if not ray.is_initialized():
        ray.init(num_cpus=1)
    with pytest.raises(ValueError, match=words):
        placement_group(bundles, **options)
    assert placement_group_table() == {}


def run(program: str, session: str, *, kill: bool = False) -> str:
    """A program of its own that joins this one's cluster."""
    environment = {**os.environ, "RAY_ADDRESS": session}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    if kill:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=20)
        return line.strip()
    return process.communicate(timeout=60)[0].strip()


MAKE = """
    import ray, time
    from ray.util import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
    ray.init(namespace="shared")
    group = placement_group([{{"CPU": 1, "GPU": 1}}], name="{name}", lifetime={lifetime})
    assert group.wait(20)
    @ray.remote(num_gpus=1, num_cpus=0)
    class Holder:
        def ready(self): return True
    holder = Holder.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote()
    assert ray.get(holder.ready.remote())
    print(group.id.hex(), flush=True)
    {then}
"""


def oxiray(*words: str) -> str:
    return subprocess.run([native_binary(), *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def started(monkeypatch):
    """A cluster that drivers come to and leave, with this program as one of them."""
    folder = tempfile.mkdtemp(prefix="oxi-")
    monkeypatch.setenv("OXIRAY_TMPDIR", folder)
    ray.shutdown()
    oxiray("start", "--head", "--num-cpus=4", "--num-gpus=2")
    try:
        ray.init(address="auto", namespace="shared")
        yield "auto"
    finally:
        ray.shutdown()
        oxiray("stop")
        shutil.rmtree(folder, ignore_errors=True)


def test_groups_end_with_their_driver_however_it_ends_and_detached_ones_stay(started) -> None:
    made = run(MAKE.format(name="mine", lifetime=None, then="pass"), started)
    wait_until(lambda: placement_group_table(PlacementGroup(ray.PlacementGroupID.from_hex(made)))["state"] == "REMOVED")
    wait_until(lambda: ray.available_resources() == ray.cluster_resources())
    killed = run(MAKE.format(name="mine", lifetime=None, then="time.sleep(1000)"), started, kill=True)
    gone = PlacementGroup(ray.PlacementGroupID.from_hex(killed))
    wait_until(lambda: placement_group_table(gone)["state"] == "REMOVED")
    assert "the job that made it is over" in placement_group_table(gone)["stats"]["reason"]
    wait_until(lambda: ray.available_resources() == ray.cluster_resources())
    kept = run(MAKE.format(name="kept", lifetime='"detached"', then="pass"), started)
    found = get_placement_group("kept")
    assert found.id.hex() == kept and found.wait(5)
    wait_until(lambda: ray.available_resources()["GPU"] == 1.0)

    @ray.remote(num_gpus=1, num_cpus=0)
    def ids():
        return ray.get_gpu_ids()

    assert ray.get(ids.options(scheduling_strategy=Within(found)).remote(), timeout=20) == [0]
    remove_placement_group(found)
    wait_until(lambda: ray.available_resources() == ray.cluster_resources())


def test_status_shows_groups(started) -> None:
    group = placement_group([{"CPU": 1, "GPU": 2}], name="train", strategy="STRICT_PACK")
    waiting = placement_group([{"CPU": 9}], name="large")
    assert group.wait(20) and not waiting.wait(0.05)
    status = oxiray("status")
    assert "train (STRICT_PACK) created" in status and "on GPU 0, 1" in status
    assert "large (PACK) pending: bundle 0 asks for {CPU: 9}" in status
