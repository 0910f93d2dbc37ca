"""Preemption: what says so ends early for what is more urgent, hears of it before, and goes on later without that being counted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from watching import wait_until, written

import ray
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

GRACE_S = 10.0
#: Longer than a request waits, and its victim has.
LONG_S = 60


@pytest.fixture
def _cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield from started(monkeypatch)


def started(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Iterator[None]:
    ray.shutdown()
    settings = {"OXIRAY_PREEMPTION": "on", "OXIRAY_PREEMPTION_GRACE_S": str(GRACE_S), **variables}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    ray.init(num_cpus=2, num_gpus=2)
    yield
    ray.shutdown()


@ray.remote(num_gpus=2, num_cpus=0, priority=5)
def urgent() -> float:
    return time.time()


def attempts(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@ray.remote(num_gpus=1, num_cpus=0, preemptible=True, max_retries=0)
def checkpoints(folder: str) -> str:
    """Goes on until it is told, says where it stood, and goes on from there."""
    here = Path(folder)
    if (here / "saved").exists():
        return f"went on from {(here / 'saved').read_text()}"
    (here / f"began-{os.getpid()}").touch()
    told = ray.get_runtime_context().preemption(timeout_s=LONG_S)
    assert told is not None
    (here / "reason").write_text(f"{told.deadline_s} {told.reason}")
    (here / "saved").write_text("step 7")
    time.sleep(LONG_S)
    return "it was not ended"


@pytest.mark.usefixtures("_cluster")
def test_a_task_hears_of_it_ends_and_is_run_again_whatever_retries_it_has(tmp_path: Path) -> None:
    victim = checkpoints.remote(str(tmp_path))
    wait_until(lambda: attempts(tmp_path), LONG_S)
    assert ray.get(urgent.remote(), timeout=LONG_S) > 0
    deadline, reason = written(tmp_path / "reason", LONG_S).split(" ", 1)
    assert 0 < float(deadline) <= GRACE_S
    assert reason == "`urgent`, whose priority is 5, waits for what it holds, and its own is 0"
    assert ray.get(victim, timeout=LONG_S) == "went on from step 7"


@pytest.mark.usefixtures("_cluster")
def test_half_way_a_task_gets_sigterm_so_that_it_may_tidy_up(tmp_path: Path) -> None:
    @ray.remote(num_gpus=1, num_cpus=0, preemptible=True, max_retries=0)
    def tidies(folder: str) -> str:
        here = Path(folder)
        if (here / "tidied").exists():
            return "again"
        begun = time.monotonic()
        try:
            (here / "began").touch()
            time.sleep(LONG_S)
        finally:
            (here / "tidied").write_text(str(time.monotonic() - begun))
        return "it was not ended"

    victim = tidies.remote(str(tmp_path))
    wait_until((tmp_path / "began").exists, LONG_S)
    ray.get(urgent.remote(), timeout=LONG_S)
    assert float(written(tmp_path / "tidied", LONG_S)) < LONG_S / 2
    assert ray.get(victim, timeout=LONG_S) == "again"


@ray.remote(num_gpus=1, num_cpus=0, preemptible=True)
class Counter:
    """Keeps its count over an early end."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / "count"
        self.count = int(self.path.read_text()) if self.path.exists() else 0

    def add(self) -> int:
        self.count += 1
        return self.count

    def where(self) -> tuple[int, bool]:
        return os.getpid(), ray.get_runtime_context().was_current_actor_reconstructed

    def on_preempt(self) -> None:
        told = ray.get_runtime_context().preemption()
        assert told is not None and told.deadline_s <= GRACE_S
        self.path.write_text(str(self.count))


@pytest.mark.usefixtures("_cluster")
def test_an_actor_saves_what_it_has_and_is_made_anew_though_it_has_no_restarts(tmp_path: Path) -> None:
    counter = Counter.remote(str(tmp_path))
    assert [ray.get(counter.add.remote()) for _ in range(3)] == [1, 2, 3]
    before, _ = ray.get(counter.where.remote())
    asked = time.monotonic()
    ray.get(urgent.remote(), timeout=LONG_S)
    # When on_preempt has returned it ends, and nobody waits for the end of the grace.
    assert written(tmp_path / "count", LONG_S) == "3"
    assert time.monotonic() - asked < 1 + GRACE_S + 10
    # A call that may not be repeated waits no longer than 2 s for an actor that is made anew.
    assert ray.get(counter.add.options(max_task_retries=-1).remote(), timeout=LONG_S) == 4
    after, is_made_anew = ray.get(counter.where.remote())
    assert after != before and is_made_anew


@pytest.mark.usefixtures("_cluster")
def test_an_async_actor_is_told_in_its_event_loop(tmp_path: Path) -> None:
    @ray.remote(num_gpus=2, num_cpus=0, preemptible=True)
    class Async:
        def __init__(self, folder: str) -> None:
            self.folder = Path(folder)

        async def ready(self) -> int:
            return os.getpid()

        async def on_preempt(self) -> None:
            import asyncio

            await asyncio.sleep(0)
            (self.folder / "told").touch()

    actor = Async.remote(str(tmp_path))
    before = ray.get(actor.ready.remote())
    ray.get(urgent.remote(), timeout=LONG_S)
    assert (tmp_path / "told").exists()
    assert ray.get(actor.ready.options(max_task_retries=-1).remote(), timeout=LONG_S) != before


@pytest.mark.usefixtures("_cluster")
def test_a_group_ends_as_a_whole_and_comes_back_with_what_ran_within(tmp_path: Path) -> None:
    group: PlacementGroup = placement_group([{"GPU": 1}, {"GPU": 1}], preemptible=True)
    ray.get(group.ready(), timeout=LONG_S)

    @ray.remote(num_gpus=1, num_cpus=0, max_retries=1)
    def within(folder: str, index: int) -> str:
        here = Path(folder)
        if (here / f"told-{index}").exists():
            return "again"
        (here / f"began-{index}").touch()
        told = ray.get_runtime_context().preemption(timeout_s=LONG_S)
        (here / f"told-{index}").write_text("" if told is None else told.reason)
        time.sleep(LONG_S)
        return "it was not ended"

    strategies = [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index) for index in (0, 1)]
    victims = [
        within.options(scheduling_strategy=strategy).remote(str(tmp_path), index) for index, strategy in enumerate(strategies)
    ]
    for index in (0, 1):
        wait_until((tmp_path / f"began-{index}").exists, LONG_S)
    ray.get(urgent.remote(), timeout=LONG_S)
    assert ray.get(victims, timeout=LONG_S) == ["again", "again"]
    assert all("`urgent`" in written(tmp_path / f"told-{index}", LONG_S) for index in (0, 1))


@pytest.mark.usefixtures("_cluster")
def test_what_is_needed_no_more_goes_on(tmp_path: Path) -> None:
    @ray.remote(num_gpus=2, num_cpus=0, preemptible=True, max_retries=0)
    def goes_on(folder: str) -> str:
        context = ray.get_runtime_context()
        (Path(folder) / "began").touch()
        if context.preemption(timeout_s=LONG_S) is None:
            return "it was not told"
        (Path(folder) / "told").touch()
        deadline = time.monotonic() + LONG_S
        while context.preemption() is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        return "went on" if context.preemption() is None else "it was not spared"

    victim = goes_on.remote(str(tmp_path))
    wait_until((tmp_path / "began").exists, LONG_S)
    waits = urgent.remote()
    wait_until((tmp_path / "told").exists, LONG_S)
    ray.cancel(waits)
    assert ray.get(victim, timeout=LONG_S) == "went on"


@pytest.mark.usefixtures("_cluster")
def test_nobody_ends_for_who_is_as_urgent_or_who_did_not_say_so() -> None:
    @ray.remote(num_gpus=1, num_cpus=0)
    class Holds:
        def told(self) -> bool:
            return ray.get_runtime_context().preemption(timeout_s=4) is not None

    holders = [Holds.options(preemptible=True, priority=5).remote(), Holds.options(priority=0).remote()]
    answers = [holder.told.remote() for holder in holders]
    waits = urgent.remote()
    assert ray.get(answers, timeout=LONG_S) == [False, False]
    assert ray.wait([waits], timeout=0)[0] == []
    assert ray.get_runtime_context().preemption() is None, "a driver is not preempted"


def test_without_being_asked_for_nothing_ends_early(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for _ in started(monkeypatch, OXIRAY_PREEMPTION="off"):
        victim = checkpoints.remote(str(tmp_path))
        wait_until(lambda: attempts(tmp_path), LONG_S)
        waits = urgent.remote()
        assert ray.wait([waits], timeout=1 + GRACE_S + 1)[0] == []
        assert len(attempts(tmp_path)) == 1
        ray.cancel(victim, force=True)
        ray.get(waits, timeout=LONG_S)


def test_options_that_are_none_are_refused() -> None:
    def f() -> None: ...

    with pytest.raises(TypeError, match="preemptible"):
        ray.remote(preemptible="yes")(f)
    with pytest.raises(TypeError, match="True or False, and not 1"):
        placement_group([{"CPU": 1}], preemptible=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--preemption=perhaps"], "preemption is `perhaps`; it is to be `on` or `off`"),
        (["--preemption-grace-s=-3"], "--preemption-grace-s is `-3`; it is a number of seconds"),
        (["--job-order=lifo"], "the order of jobs is `lifo`; it is to be `fair` or `arrival`"),
    ],
)
def test_a_head_that_is_told_nonsense_does_not_start(options: list[str], told: str) -> None:
    command = [str(Path(sys.executable).parent / "oxiray"), "start", "--head", "--num-cpus=1", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0 and told in done.stderr, (done.returncode, done.stderr)


PROGRAM = """
import sys, time
import ray

ray.init(logging_level="ERROR")

@ray.remote
def work(seconds):
    time.sleep(seconds)
    return time.time()

first = [work.remote(0.02) for _ in range(int(sys.argv[1]))]
if len(first) > 1:
    # The first to ask is served when the next one comes.
    ray.get(first[0])
print("began", flush=True)
sys.stdin.readline()
print(max(ray.get(first)), flush=True)
"""


def test_jobs_are_served_in_the_order_in_which_they_asked_where_that_is_asked_for(tmp_path: Path) -> None:
    oxiray = str(Path(sys.executable).parent / "oxiray")
    environment = {**os.environ, "OXIRAY_TMPDIR": str(tmp_path)}
    environment.pop("RAY_ADDRESS", None)
    start = [oxiray, "start", "--head", "--num-cpus=1", "--job-order=arrival"]
    subprocess.run(start, env=environment, check=True, capture_output=True, timeout=60)

    def program(count: int) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started = subprocess.Popen([sys.executable, "-c", PROGRAM, str(count)], env=environment, **pipes)  # type: ignore[call-overload]
        assert started.stdout.readline() == "began\n"
        return started

    try:
        large = program(300)
        small = program(1)
        ends = [float(one.communicate("\n", timeout=LONG_S)[0]) for one in (large, small)]
        # By shares the one task would go first: its job holds nothing.
        assert ends[0] < ends[1]
    finally:
        subprocess.run([oxiray, "stop"], env=environment, check=False, capture_output=True, timeout=60)
