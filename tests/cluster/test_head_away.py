"""The head's daemon is killed and started again: work on other nodes goes on meanwhile, and nothing is lost or doubled."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from oxiray import _core
from homes import free_port
from oxiray._cli import native_binary
from ray.exceptions import ActorDiedError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from watching import alive, wait_until

pytestmark = pytest.mark.timeout(300)


class Away:
    """A head with two members, and this program as its driver."""

    def __init__(self, folder: str, over_network: bool, lease_s: int) -> None:
        self.over_network, self.port, self.lease_s = over_network, free_port(), lease_s
        self.home = Path(folder) / f"oxiray-{os.geteuid()}"
        self.address = f"127.0.0.1:{self.port}"
        self.start_head()
        for number in (1, 2):
            self.start_member(number)
        ray.init(address=self.address)

    def oxiray(self, *words: str, told: str | None = None) -> str:
        """Runs a command, which is told this on its standard input."""
        ended = subprocess.run([str(native_binary()), *words], input=told, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended
        return ended.stdout

    def start_head(self) -> None:
        self.oxiray("start", "--head", f"--port={self.port}", "--num-cpus=1", f"--node-lease={self.lease_s}")

    def start_member(self, number: int) -> None:
        door, told = [f"--address={self.address}"], None
        if self.over_network:
            (token,) = self.home.glob("session_*/join-token")
            # The second member has no file to read again when the head comes back.
            file, told = (str(token), None) if number == 1 else ("-", token.read_text())
            door += [f"--token-file={file}", f"--node-ip-address=127.0.0.{number + 1}"]
        self.oxiray("start", *door, "--num-cpus=2", f'--resources={{"member{number}": 4}}', told=told)

    def member_of(self, worker: int) -> int:
        """The daemon of the node that a worker runs on."""
        pid = worker
        while pid not in self.members:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return pid

    def ip_of_member(self) -> str:
        """The address of one of the members."""
        return str(next(found["ip"] for found in self._sessions() if found["member"]))

    def _sessions(self) -> list[dict[str, Any]]:
        found = []
        for path in self.home.glob("session_*/session.json"):
            # A session ends with its daemon, which may be just now.
            with contextlib.suppress(FileNotFoundError):
                found.append(json.loads(path.read_text()))
        return found

    @property
    def head(self) -> int:
        return int(next(found["pid"] for found in self._sessions() if not found["member"]))

    @property
    def members(self) -> list[int]:
        return [int(found["pid"]) for found in self._sessions() if found["member"]]

    def kill_head(self) -> None:
        pid = self.head
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(pid))


@pytest.fixture
def lease_s() -> int:
    """Longer than a busy machine takes to start the head again."""
    return 15


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch, over_network: bool, lease_s: int) -> Iterator[Away]:
    folder = tempfile.mkdtemp(prefix="oxi-")
    monkeypatch.setenv("OXIRAY_TMPDIR", folder)
    ray.shutdown()
    away = Away(folder, over_network, lease_s)
    yield away
    ray.shutdown()
    subprocess.run([str(native_binary()), "stop"], check=False, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


@ray.remote(num_cpus=1)
def wait_for(begun: Path, end: Path, value: Any) -> Any:
    begun.touch()
    while not end.exists():
        time.sleep(0.01)
    return value


@ray.remote(num_cpus=0)
class Counter:
    def __init__(self) -> None:
        self.count = 0
        self.kept: list[Any] = []

    def add(self) -> int:
        self.count += 1
        return self.count

    def pid(self) -> int:
        return os.getpid()

    def keep(self, boxed: list[Any]) -> None:
        self.kept = boxed

    def read(self) -> Any:
        return [ray.get(reference) for reference in self.kept]

    def make(self) -> list[Any]:
        return [ray.put("small"), ray.put(np.zeros(1 << 20, dtype=np.uint8))]


def held() -> list[Any]:
    """The objects that somebody refers to."""
    objects: list[Any] = _core.holdings()[0]
    return objects


def on_member(number: int) -> dict[str, Any]:
    return {"resources": {f"member{number}": 1}}


def test_tasks_and_actors_go_on_while_the_head_is_away(away: Away, tmp_path: Path) -> None:
    counter = Counter.options(**on_member(1)).remote()
    pid = ray.get(counter.pid.remote())
    assert ray.get([counter.add.remote() for _ in range(3)]) == [1, 2, 3]
    running = wait_for.options(**on_member(2)).remote(tmp_path / "a", tmp_path / "end", "ended meanwhile")
    later = wait_for.options(**on_member(2)).remote(tmp_path / "b", tmp_path / "late", "ended after")
    wait_until(lambda: (tmp_path / "a").exists() and (tmp_path / "b").exists())
    away.kill_head()
    count = 3
    if not away.over_network:
        count = 6
        assert ray.get([counter.add.remote() for _ in range(3)]) == [4, 5, 6], "calls on streams that stand go on"
    (tmp_path / "end").touch()
    if not away.over_network:
        assert ray.get(running) == "ended meanwhile"
    new = wait_for.options(**on_member(1)).remote(tmp_path / "c", tmp_path / "end", "begun after")
    away.start_head()
    assert ray.get(new, timeout=60) == "begun after"
    (tmp_path / "late").touch()
    # What a program on the head's machine had under way on another is run again: the streams between the two ended.
    assert ray.get([running, later]) == ["ended meanwhile", "ended after"]
    assert ray.get(counter.add.remote()) == count + 1 and ray.get(counter.pid.remote()) == pid
    wait_until(lambda: ray.available_resources().get("member2") == 4)
    assert ray.cluster_resources()["CPU"] == 5


def test_references_are_counted_as_before(away: Away, tmp_path: Path) -> None:
    """What is held, passed on, written and published before, during and after: all is read, and then let go of."""
    holder = Counter.options(**on_member(1)).remote()
    maker = Counter.options(**on_member(2)).remote()
    mine = [ray.put("mine"), ray.put(np.ones(1 << 20, dtype=np.uint8))]
    ray.get(holder.keep.remote(ray.get(maker.make.remote()) + [mine[0]]))
    borrowed = wait_for.options(**on_member(2)).remote(tmp_path / "begun", tmp_path / "end", [mine[0]])
    wait_until((tmp_path / "begun").exists)
    away.kill_head()
    (tmp_path / "end").touch()
    if away.over_network:
        # The streams of a program on the head's machine to others end with the head.
        away.start_head()
        during = maker.make.remote()
    else:
        during = maker.make.remote()
        ray.get(during)
        away.start_head()
    small, large = ray.get(during)
    assert [str(value)[:5] for value in ray.get(holder.read.remote())] == ["small", "[0 0 ", "mine"]
    assert ray.get(small) == "small" and ray.get(large).sum() == 0
    assert ray.get(ray.get(borrowed)[0]) == "mine"
    ray.get(holder.keep.remote([small, large]))
    del small, large, during, borrowed, mine
    assert [str(value)[:5] for value in ray.get(holder.read.remote())] == ["small", "[0 0 "]
    ray.get(holder.keep.remote([]))
    # Their anchors are left.
    wait_until(lambda: len(held()) == 2)
    del holder, maker
    wait_until(lambda: not held())


def test_what_was_asked_while_the_head_was_away_is_answered(away: Away, tmp_path: Path) -> None:
    """Named actors, groups and kept values, and whoever waited for room."""
    named = Counter.options(name="named", lifetime="detached", **on_member(1)).remote()
    pid = ray.get(named.pid.remote())
    group = ray.util.placement_group([{"member1": 1}, {"member2": 1}], strategy="SPREAD")
    ray.get(group.ready())
    inside = Counter.options(
        scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=1),
        resources={"member2": 1},
    ).remote()
    inner = ray.get(inside.pid.remote())
    away.kill_head()
    made = Counter.options(name="made meanwhile", **on_member(2)).remote
    with ThreadPoolExecutor() as threads:
        asked = threads.submit(made)
        found = threads.submit(ray.get_actor, "named")
        fresh = ray.util.placement_group([{"member1": 1}])
        ready = fresh.ready()
        unnamed = Counter.options(**on_member(1)).remote()
        count = unnamed.add.remote()
        away.start_head()
        assert ray.get(asked.result(60).add.remote(), timeout=60) == 1
        assert ray.get(found.result(60).pid.remote(), timeout=60) == pid
    assert ray.get(count, timeout=60) == 1
    ray.get(ready, timeout=60)
    assert ray.get(inside.pid.remote(), timeout=60) == inner
    table = ray.util.placement_group_table(group)
    assert table["state"] == "CREATED"
    ray.util.remove_placement_group(group)
    wait_until(lambda: not alive(inner))
    ray.kill(named)
    wait_until(lambda: not alive(pid))


def test_room_that_the_last_head_lent_is_not_used(away: Away) -> None:
    for number in range(4):
        ray.put(np.full(1 << 17, number))
    away.kill_head()
    with ThreadPoolExecutor(1) as threads:
        # The first waits for the next head, since no room was lent for an object of its size.
        put = threads.submit(lambda: [ray.put(np.full(size, size)) for size in [1 << 18, *[1 << 17] * 8]])
        away.start_head()
        references = put.result(60)
    for array in ray.get(references, timeout=60):
        assert array[0] == array[-1] == len(array)
    del references, put, array
    wait_until(lambda: not held())


def test_a_node_that_ended_meanwhile_is_given_up(away: Away) -> None:
    lost = Counter.options(max_restarts=0, **on_member(1)).remote()
    restarted = Counter.options(max_restarts=1, max_task_retries=-1, resources={"member1": 1}).remote()
    stays = Counter.options(**on_member(2)).remote()
    pids = ray.get([lost.pid.remote(), restarted.pid.remote(), stays.pid.remote()])
    away.kill_head()
    member = away.member_of(pids[0])
    os.kill(member, signal.SIGKILL)
    wait_until(lambda: not alive(pids[0]) and not alive(pids[1]))
    away.start_head()
    assert ray.get(stays.pid.remote()) == pids[2]
    again = restarted.pid.remote()
    with pytest.raises(ActorDiedError, match="while the head of its cluster was away"):
        ray.get(lost.pid.remote(), timeout=60)
    away.start_member(1)
    assert ray.get(again, timeout=60) not in pids


@pytest.mark.parametrize("lease_s", [4])
def test_a_node_whose_lease_ran_out_comes_back_as_another(away: Away) -> None:
    if not away.over_network:
        pytest.skip("a node on the head's machine has no lease: it ends when the head stays away")
    before = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    lost = Counter.options(max_restarts=0, **on_member(1)).remote()
    restarted = Counter.options(max_restarts=1, max_task_retries=-1, **on_member(2)).remote()
    pids = ray.get([lost.pid.remote(), restarted.pid.remote()])
    away.kill_head()
    wait_until(lambda: not any(map(alive, pids)))
    away.start_head()
    assert ray.get(restarted.pid.remote(), timeout=60) not in pids
    with pytest.raises(ActorDiedError, match="while the head of its cluster was away"):
        ray.get(lost.pid.remote(), timeout=60)
    wait_until(lambda: len([node for node in ray.nodes() if node["Alive"]]) == 3)
    assert not before & {node["NodeID"] for node in ray.nodes() if node["Alive"]}


GUEST = """
import json, sys, time
from pathlib import Path
import ray

address, ip, marker, back = sys.argv[1:]
ray.init(address=address, _node_ip_address=ip)

@ray.remote(num_cpus=0, resources={"member2": 1})
class Counter:
    def __init__(self):
        self.count = 0
    def add(self):
        self.count += 1
        return self.count

counter = Counter.remote()
kept = ray.put("kept")
assert ray.get(counter.add.remote()) == 1
Path(marker).touch()
while not Path(back).exists():
    assert ray.get(counter.add.remote()) > 1, "calls go on all the while"
count = ray.get(counter.add.remote())
later = Counter.remote()
assert ray.get([later.add.remote(), counter.add.remote()]) == [1, count + 1]
assert ray.get(kept) == "kept"
print("all is well")
"""


def test_a_program_on_a_member_goes_on(away: Away, tmp_path: Path) -> None:
    ip = away.ip_of_member()
    begun, back = tmp_path / "begun", tmp_path / "back"
    program = subprocess.Popen(
        [sys.executable, "-c", GUEST, away.address, ip, str(begun), str(back)], stdout=subprocess.PIPE, text=True
    )
    wait_until(begun.exists)
    away.kill_head()
    away.start_head()
    assert ray.cluster_resources()["CPU"] > 0
    back.touch()
    told, _ = program.communicate(timeout=60)
    assert program.returncode == 0 and "all is well" in told


@ray.remote(num_cpus=0)
class Owner:
    """Has a task run. Its streams to other nodes stand while the head is away; those of a program beside the head do not."""

    def __init__(self) -> None:
        self.running: Any = None

    def begin(self, *given: Any) -> None:
        self.running = wait_for.options(**on_member(1)).remote(*given)

    def ended(self) -> Any:
        return ray.get(self.running)


def test_a_node_that_is_being_drained_goes_on_being_drained(away: Away, tmp_path: Path) -> None:
    counter = Counter.options(**on_member(1), max_restarts=-1).remote()
    owner = Owner.options(**on_member(2)).remote()
    ray.get(owner.begin.remote(tmp_path / "begun", tmp_path / "end", "ended"))
    pid = ray.get(counter.pid.remote())
    wait_until(lambda: (tmp_path / "begun").exists())
    node = next(found["NodeID"] for found in ray.nodes() if "member1" in found["Resources"])
    away.oxiray("drain", node, "--deadline", "300", "--reason", "notice")
    away.kill_head()
    away.start_head()
    shown = lambda: {one["node_id"]: one for one in json.loads(away.oxiray("status", "--json"))["nodes"]}  # noqa: E731
    wait_until(lambda: node in shown() and shown()[node]["draining"])
    assert shown()[node]["draining"]["reason"] == "notice"
    (tmp_path / "end").touch()
    assert ray.get(owner.ended.remote(), timeout=60) == "ended"
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(away.members) == 1, 60)


@ray.remote(num_cpus=1, max_retries=20)
def doubled(number: int, references: list[Any]) -> tuple[int, list[Any], int]:
    return 2 * number, [ray.put(number), ray.put(np.full(1 << 17, number))], sum(ray.get(references))


def test_a_head_that_is_killed_again_and_again_under_load(away: Away) -> None:
    """Every result is right, and in the end nothing is held or granted."""
    counter = Counter.options(max_task_retries=20, **on_member(1)).remote()
    is_over = threading.Event()

    def load() -> int:
        rounds = 0
        while not is_over.is_set():
            numbers = [ray.put(number) for number in range(3)]
            results = [doubled.options(**on_member(2)).remote(number, numbers) for number in range(4)]
            for number, (double, (small, large), total) in enumerate(ray.get(results, timeout=100)):
                assert (double, total) == (2 * number, 3)
                assert ray.get(small, timeout=100) == number and (ray.get(large, timeout=60) == number).all()
            ray.get(counter.add.remote(), timeout=100)
            rounds += 1
        return rounds

    with ThreadPoolExecutor() as threads:
        loads = [threads.submit(load) for _ in range(2)]
        before = ray.get(counter.add.remote())
        for _ in range(3):
            wait_until(lambda before=before: ray.get(counter.add.remote()) > before + 10)
            away.kill_head()
            away.start_head()
            before = ray.get(counter.add.remote(), timeout=100)
        is_over.set()
        rounds = sum(load.result(200) for load in loads)
    assert rounds > 0
    wait_until(lambda: len(held()) == 1)
    del counter
    wait_until(lambda: not held())
    everything = {"CPU": 5, "member1": 4, "member2": 4}
    wait_until(lambda: everything.items() <= ray.available_resources().items())
