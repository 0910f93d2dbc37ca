"""`cancel` at any moment: it meets the call it names or none, nothing hangs, and nothing stays behind."""

from __future__ import annotations

import random
import time

import pytest
import ray
from ray.exceptions import TaskCancelledError, WorkerCrashedError

pytestmark = pytest.mark.usefixtures("cluster")


@ray.remote
def spin(seconds: float, number: int) -> int:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
    return number


@ray.remote
def rest(seconds: float, number: int) -> int:
    time.sleep(seconds)
    return number


def outcome(reference, timeout: float = 30.0) -> object:
    try:
        return ray.get(reference, timeout=timeout)
    except (TaskCancelledError, WorkerCrashedError) as error:
        return error


@pytest.mark.parametrize("make", [spin, rest])
def test_two_hundred_cancels_at_random_moments_meet_nobody_else(make) -> None:
    chance = random.Random(7)
    ray.get([make.remote(0, i) for i in range(50)])
    for _ in range(10):
        tasks = [make.remote(chance.choice([0, 0.0003, 0.002]), number) for number in range(60)]
        cancelled = set(chance.sample(range(60), 20))
        for number in sorted(cancelled, key=lambda _: chance.random()):
            if chance.random() < 0.3:
                time.sleep(chance.random() * 0.002)
            ray.cancel(tasks[number])
        for number, task in enumerate(tasks):
            found = outcome(task)
            assert found == number or (number in cancelled and isinstance(found, TaskCancelledError)), (number, found)


def test_cancels_at_the_end_of_a_task_never_meet_the_next() -> None:
    """One after the other on one worker, each cancelled about when it ends."""

    def cancels_that_met(length: float, rounds: int) -> int:
        met = 0
        for number in range(rounds):
            task = rest.options(num_cpus=4).remote(length, number)
            time.sleep(length * (0.25 + 1.5 * number / rounds))
            ray.cancel(task)
            innocent = spin.options(num_cpus=4).remote(0.0005, -number)
            found = outcome(task)
            assert found == number or isinstance(found, TaskCancelledError)
            met += isinstance(found, TaskCancelledError)
            assert ray.get(innocent, timeout=20) == -number
        return met

    # On a busy machine a cancel may take longer than a short task.
    lengths = ((0.002, 150), (0.02, 100), (0.2, 30))
    assert any(0 < cancels_that_met(*one) < one[1] for one in lengths), "moments before and after the end were both met"


def test_forced_cancels_take_only_their_own_task() -> None:
    chance = random.Random(11)
    for _ in range(4):
        tasks = [spin.remote(chance.choice([0.0005, 0.01]), number) for number in range(24)]
        cancelled = set(chance.sample(range(24), 5))
        for number in cancelled:
            time.sleep(chance.random() * 0.003)
            ray.cancel(tasks[number], force=True)
        for number, task in enumerate(tasks):
            found = outcome(task)
            if number in cancelled:
                assert found == number or isinstance(found, TaskCancelledError)
            else:
                assert found == number


def test_cancels_of_an_actor_s_calls_meet_only_those() -> None:
    @ray.remote
    class Counter:
        def __init__(self):
            self.calls = []

        def note(self, number):
            self.calls.append(number)
            return number

        def noted(self):
            return self.calls

    chance = random.Random(13)
    counter = Counter.remote()
    calls = [counter.note.remote(number) for number in range(400)]
    cancelled = set(chance.sample(range(400), 200))
    for number in cancelled:
        ray.cancel(calls[number])
    found = [outcome(call) for call in calls]
    noted = ray.get(counter.noted.remote(), timeout=20)
    assert noted == sorted(noted), "the order of the others is kept"
    for number, one in enumerate(found):
        if number in cancelled:
            assert one == number or isinstance(one, TaskCancelledError)
        else:
            assert one == number and number in noted


def test_cancelling_a_thousand_that_wait_is_quick_and_leaves_nothing() -> None:
    blocker = rest.options(num_cpus=4).remote(0.5, 0)
    before = ray._core.objects_known()
    waiting = [spin.remote(0, number) for number in range(1000)]
    for task in waiting:
        ray.cancel(task)
    ready, rest_of_them = ray.wait(waiting, num_returns=1000, timeout=60)
    assert (len(ready), rest_of_them) == (1000, []), "they end long before they could run"
    del ready, waiting, task
    assert ray._core.objects_known() <= before
    assert ray.get(blocker, timeout=20) == 0
