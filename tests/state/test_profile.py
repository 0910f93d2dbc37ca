"""`oxiray profile`: what threads of processes compute, wait for and allocate."""

from __future__ import annotations

import json
import os
import random
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import ray
from oxiray import _profile
from ray.cluster_utils import Cluster

from commands import run
from watching import wait_until


@ray.remote
class Busy:
    """Computes in one thread, waits in another and allocates in a third, until it is told to stop."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.kept: list[bytes] = []

    def pid(self) -> int:
        return os.getpid()

    def pieces(self) -> int:
        return len(self.kept)

    def begin(self, *works: str) -> int:
        for work in works:
            threading.Thread(target=getattr(self, work), name=work, daemon=True).start()
        return os.getpid()

    def computes(self) -> None:
        while not self.stop.is_set():
            self.inner()

    def inner(self) -> int:
        return sum(number * number for number in range(2_000))

    def waits(self) -> None:
        self.stop.wait()

    def compresses(self) -> None:
        text = os.urandom(1 << 20)
        while not self.stop.is_set():
            # Native code that gives the interpreter up.
            zlib.compress(text, 9)

    def allocates(self) -> None:
        while not self.stop.wait(0.02):
            self.kept.append(bytes(100_000))

    def recurses(self) -> None:
        long = "a" * 400
        source = [f"def {long}{number}(d):\n return choice(all)(d - 1) if d else sum(range(500))" for number in range(50)]
        names: dict[str, Any] = {"choice": random.Random(1).choice}
        exec("\n".join(source), names)
        names["all"] = [function for name, function in names.items() if name.startswith(long)]
        while not self.stop.is_set():
            names["all"][0](99)

    def ends_soon(self) -> None:
        self.stop.wait(0.5)
        os._exit(1)


@ray.remote
def computes_until(marker: str) -> None:
    while not Path(marker).exists():
        sum(range(1000))


@pytest.fixture
def address(cluster: ray.RayContext) -> str:
    return str(cluster.address_info["address"])


@pytest.fixture
def busy(cluster: ray.RayContext) -> Iterator[Any]:
    actor = Busy.remote()
    ray.get(actor.pid.remote())
    yield actor
    ray.kill(actor)


def profile(address: str, target: str, *options: str, seconds: int = 2) -> dict[str, Any]:
    (told,) = json.loads(run("profile", target, "--json", f"--seconds={seconds}", f"--address={address}", *options))
    return dict(told)


def weights(told: dict[str, Any], what: str = "function") -> dict[str, int]:
    """Of each function, how much weighs what it does itself and what it calls."""
    found: dict[str, int] = {}
    for stack in told["stacks"]:
        for name in {frame[what] for frame in stack["frames"]}:
            found[name] = found.get(name, 0) + stack["weight"]
    return found


def test_processor_time_is_that_of_who_computes(address: str, busy: Any) -> None:
    pid = ray.get(busy.begin.remote("computes", "waits"))
    told = profile(address, busy._actor_id.hex()[:12])
    assert (told["pid"], told["note"]) == (pid, "")
    found = weights(told)
    total = sum(stack["weight"] for stack in told["stacks"])
    # Microseconds: of two seconds, on a machine that other tests share.
    assert 0 < total < 20_000_000, told
    assert found["Busy.computes"] > 0.8 * total and found["Busy.inner"] > 0.7 * total, found
    assert found.get("Busy.waits", 0) < 0.1 * total, found
    assert {stack["name"] for stack in told["stacks"]} >= {"computes"}
    assert any(frame["file"] == __file__ and frame["line"] > 0 for stack in told["stacks"] for frame in stack["frames"])


def test_wall_clock_time_is_that_of_who_waits_too(address: str, busy: Any) -> None:
    ray.get(busy.begin.remote("computes", "waits"))
    found = weights(profile(address, busy._actor_id.hex(), "--wall", "--rate=50"))
    assert all(1_400_000 < found[name] < 20_000_000 for name in ("Busy.waits", "Busy.computes")), found


def test_a_thread_that_goes_on_while_it_is_looked_at_keeps_its_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads a thread's account gives the interpreter up, and the thread that computes may take it for long."""
    read = _profile._Thread.computed_ns

    def slow(thread: Any) -> int | None:
        time.sleep(0.02)
        return read(thread)

    monkeypatch.setattr(_profile._Thread, "computed_ns", slow)
    begun, stop = threading.Event(), threading.Event()

    def computes() -> None:
        begun.set()
        while not stop.is_set():
            sum(number * number for number in range(2_000))

    thread = threading.Thread(target=computes, name="computes")
    thread.start()
    # Before its function is called, the thread is not in `Thread.run` yet.
    assert begun.wait(60)
    sampler = _profile.Sampler(of_processor=False)
    for _ in range(20):
        time.sleep(0.001)
        sampler.sample()
    stop.set()
    thread.join()
    stacks = [[function for function, _, _ in frames] for name, frames, _ in sampler.result()[0] if name == "computes"]
    assert stacks and all("Thread.run" in functions for functions in stacks), stacks


def test_native_code_without_the_interpreter_counts_for_who_called_it(address: str, busy: Any) -> None:
    ray.get(busy.begin.remote("compresses"))
    told = profile(address, busy._actor_id.hex())
    total = sum(stack["weight"] for stack in told["stacks"])
    assert total > 0 and weights(told)["Busy.compresses"] > 0.9 * total, told


def test_memory_is_that_which_is_still_there(address: str, busy: Any) -> None:
    ray.get(busy.begin.remote("allocates", "computes"))
    line = "self.kept.append(bytes(100_000))"
    # The second one begins anew: the tracing has ended with the first.
    for _ in range(2):
        before = ray.get(busy.pieces.remote())
        told = profile(address, busy._actor_id.hex(), "--memory")
        pieces = ray.get(busy.pieces.remote()) - before
        found = weights(told)
        assert found[line] > 0.8 * sum(stack["weight"] for stack in told["stacks"]), found
        assert 100_000 <= found[line] <= (pieces + 1) * 100_100, "100 kB each 20 ms"


def test_a_task_by_its_identifier_and_the_driver_by_its_process(address: str, tmp_path: Path) -> None:
    marker = tmp_path / "go"
    call = computes_until.remote(str(marker))
    wait_until(lambda: "RUNNING" in run("list", "tasks", f"--address={address}"))
    assert "computes_until" in weights(profile(address, call.task_id().hex()))
    driver = profile(address, str(os.getpid()), "--wall")
    assert (driver["worker_type"], "test_a_task_by_its_identifier_and_the_driver_by_its_process" in weights(driver)) == ("DRIVER", True)
    marker.touch()
    ray.get(call)
    assert "is FINISHED" in run("profile", call.task_id().hex(), f"--address={address}", check=False)


def test_it_is_printed_as_a_table_and_written_in_the_formats_of_tools(address: str, busy: Any, tmp_path: Path) -> None:
    ray.get(busy.begin.remote("computes"))
    target = busy._actor_id.hex()

    def written(name: str) -> tuple[str, str]:
        printed = run("profile", target, "--seconds=2", f"--output={tmp_path / name}", f"--address={address}")
        return printed, (tmp_path / name).read_text()

    printed, svg = written("a.svg")
    assert "CPU time over 2 s, 100 samples a second of pid " in printed and "Busy.inner" in printed
    assert svg.startswith("<svg ") and "Busy.computes" in svg and svg.endswith("</svg>\n")
    speedscope = json.loads(written("a.json")[1])
    assert "Busy.computes" in {frame["name"] for frame in speedscope["shared"]["frames"]}
    (of_thread,) = [one for one in speedscope["profiles"] if one["name"].endswith("computes")]
    assert len(of_thread["samples"]) == len(of_thread["weights"]) and sum(of_thread["weights"]) == of_thread["endValue"]
    folded = written("a.folded")[1].splitlines()
    assert all(int(line.rsplit(" ", 1)[1]) >= 0 and ";computes;" in line for line in folded if "Busy.inner" in line)
    assert run("profile", target, "--seconds=1", "--format=folded", f"--address={address}").startswith("pid ")
    refused = run("profile", target, "--output=profile", f"--address={address}", check=False)
    assert "has no ending that names a format" in refused and not (Path.cwd() / "profile").exists()


def test_more_stacks_than_an_answer_has_room_for(address: str, busy: Any) -> None:
    pid = ray.get(busy.begin.remote("recurses"))
    told = profile(address, busy._actor_id.hex(), "--rate=1000", seconds=10)
    *most, rest = told["stacks"]
    assert rest["frames"][0]["function"] == "(many stacks, each with little)" and rest["weight"] > 0
    assert len(most) > 50 and all(len(stack["frames"]) <= 100 for stack in most)
    # The process lives, and its stacks as they are now can be asked for too.
    assert ray.get(busy.pid.remote()) == pid

    def shows_deep_ones() -> bool:
        (stacks,) = json.loads(run("stack", str(pid), "--json", f"--address={address}"))
        return any(len(stack["frames"]) > 50 for stack in stacks["stacks"])

    # Between two recursions none is deep.
    wait_until(shows_deep_ones)


def test_one_profile_of_a_process_at_a_time(address: str, busy: Any) -> None:
    ray.get(busy.begin.remote("computes"))
    with ThreadPoolExecutor(2) as pool:
        # Long enough for the second command to begin before the first profile is over.
        both = list(pool.map(lambda _: profile(address, busy._actor_id.hex(), seconds=12), range(2)))
    notes = sorted(told["note"] for told in both)
    assert notes == ["", "another profile of it is being taken: ask again when that is over"]
    assert profile(address, busy._actor_id.hex())["note"] == ""


def test_a_process_that_ends_meanwhile_and_wrong_numbers(address: str, busy: Any) -> None:
    ray.get(busy.begin.remote("ends_soon"))
    ended = run("profile", busy._actor_id.hex(), "--seconds=30", f"--address={address}", check=False)
    assert "runs in no process of the cluster's, or its process ended meanwhile" in ended
    for option, said in (
        ("--seconds=0", "a profile of 0 s was asked for: it takes more than 0 s and at most 60 s"),
        ("--seconds=61", "a profile of 61 s was asked for"),
        ("--seconds=nan", "a profile of 0 s was asked for"),
        ("--rate=0", "a profile of 0 samples a second was asked for: there are 1 to 1000"),
        ("--rate=1001", "a profile of 1001 samples a second was asked for"),
    ):
        assert said in run("profile", str(os.getpid()), option, f"--address={address}", check=False)


def test_a_process_on_another_machine(tmp_path: Path) -> None:
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        other = cluster.add_node(num_cpus=1, resources={"other": 1})
        ray.init(address=cluster.address)
        actor = Busy.options(resources={"other": 1}, num_cpus=0).remote()
        ray.get(actor.begin.remote("computes"))
        told = profile(cluster.address, actor._actor_id.hex())
        assert told["node_id"] == other.node_id and "Busy.computes" in weights(told)
    finally:
        ray.shutdown()
        cluster.shutdown()
