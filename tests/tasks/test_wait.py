"""`wait`: which references it names, in which order, and that waiting for many one by one stays cheap."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

pytestmark = pytest.mark.usefixtures("cluster")


@ray.remote
def echo(value: object) -> object:
    return value


@ray.remote(num_cpus=0.01)
def until_exists(path: Path) -> str:
    while not path.exists():
        time.sleep(0.002)
    return path.name


def test_the_first_that_are_there_in_the_order_given(tmp_path) -> None:
    gates = [tmp_path / str(number) for number in range(6)]
    tasks = [until_exists.remote(gate) for gate in gates]
    assert ray.wait(tasks, num_returns=2, timeout=0) == ([], tasks)
    for number in (4, 1, 5):
        gates[number].touch()
    ray.get([tasks[number] for number in (1, 4, 5)])
    assert ray.wait(tasks) == ([tasks[1]], [tasks[n] for n in (0, 2, 3, 4, 5)])
    assert ray.wait(tasks, num_returns=2) == ([tasks[1], tasks[4]], [tasks[n] for n in (0, 2, 3, 5)])
    assert ray.wait(tasks, num_returns=5, timeout=0.05) == ([tasks[n] for n in (1, 4, 5)], [tasks[n] for n in (0, 2, 3)])
    for gate in gates:
        gate.touch()
    assert ray.wait(tasks, num_returns=6, timeout=20) == (tasks, [])


@pytest.mark.parametrize("count", [1, 50, 99, 100])
def test_so_many_of_a_hundred(count) -> None:
    tasks = [echo.remote(number) for number in range(100)]
    ready, rest = ray.wait(tasks, num_returns=count, timeout=20)
    assert (len(ready), len(rest)) == (count, 100 - count)
    assert sorted(ready + rest, key=tasks.index) == tasks
    assert ray.get(ready, timeout=20) == [tasks.index(task) for task in ready]


def test_failures_count_as_there() -> None:
    @ray.remote
    def fail():
        raise ValueError("no")

    task = fail.remote()
    assert ray.wait([task], timeout=20) == ([task], [])
    with pytest.raises(ValueError, match="no"):
        ray.get(task)


def test_values_that_others_own(tmp_path) -> None:
    @ray.remote
    def make():
        return [until_exists.remote(tmp_path / "gate"), echo.remote("there")]

    slow, quick = ray.get(make.remote(), timeout=20)
    assert ray.wait([slow, quick], timeout=20) == ([quick], [slow])
    (tmp_path / "gate").touch()
    assert ray.wait([slow, quick], num_returns=2, timeout=20) == ([slow, quick], [])


def test_a_thousand_one_by_one() -> None:
    waiting = [echo.remote(number) for number in range(1000)]
    values = []
    while waiting:
        ready, waiting = ray.wait(waiting, timeout=20)
        assert len(ready) == 1
        values.append(ray.get(ready[0]))
    assert sorted(values) == list(range(1000))


def test_several_threads_wait_for_the_same() -> None:
    tasks = [echo.remote(number) for number in range(200)]
    found: list[int] = []
    waiters = [
        threading.Thread(target=lambda n=n: found.append(len(ray.wait(tasks, num_returns=n, timeout=20)[0])))
        for n in (1, 60, 120, 200)
    ]
    for waiter in waiters:
        waiter.start()
    for waiter in waiters:
        waiter.join()
    assert sorted(found) == [1, 60, 120, 200]


def test_what_it_refuses() -> None:
    task = echo.remote(1)
    with pytest.raises(ValueError, match="twice"):
        ray.wait([task, task])
    with pytest.raises(TypeError, match="ObjectRef"):
        ray.wait([task, 3])
    with pytest.raises(TypeError, match="list"):
        ray.wait(task)
    with pytest.raises(ValueError, match="num_returns cannot be greater"):
        ray.wait([task], num_returns=2)
    assert ray.wait([]) == ([], [])


@ray.remote(num_cpus=0)
def fail_with(text: str) -> None:
    raise ValueError(text)


@ray.remote(num_cpus=0)
class Mortal:
    def wait(self, path: Path) -> None:
        while not path.exists():
            time.sleep(0.002)


@pytest.mark.parametrize("timeout", [None, 60])
@pytest.mark.parametrize("where", ["driver", "task", "actor"])
def test_get_raises_as_soon_as_one_has_failed(tmp_path, timeout, where) -> None:
    gate = tmp_path / "gate"

    def both_orders(gate: Path) -> int:
        for fails_first in (True, False):
            bad, slow = fail_with.remote("no"), until_exists.remote(gate)
            with pytest.raises(ValueError, match="no"):
                ray.get([bad, slow] if fails_first else [slow, bad], timeout=timeout)
            assert ray.wait([slow], timeout=0) == ([], [slow])
        return 2

    class Runner:
        def run(self, gate: Path) -> int:
            return both_orders(gate)

    if where == "driver":
        assert both_orders(gate) == 2
    elif where == "task":
        assert ray.get(ray.remote(both_orders).remote(gate), timeout=60) == 2
    else:
        assert ray.get(ray.remote(Runner).remote().run.remote(gate), timeout=60) == 2
    gate.touch()


def test_a_dead_actors_call_ends_a_get_of_several(tmp_path) -> None:
    actor = Mortal.remote()
    slow, lost = until_exists.remote(tmp_path / "gate"), actor.wait.remote(tmp_path / "never")
    ray.kill(actor)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get([slow, lost])
    (tmp_path / "gate").touch()


def test_of_several_failures_the_first_of_the_list_is_raised(tmp_path) -> None:
    one, two = fail_with.remote("one"), fail_with.remote("two")
    ray.wait([one, two], num_returns=2)
    slow = until_exists.remote(tmp_path / "gate")
    for references, text in (([slow, one, two], "one"), ([two, slow, one], "two")):
        with pytest.raises(ValueError, match=text):
            ray.get(references, timeout=0)
    with pytest.raises(ray.exceptions.GetTimeoutError):
        ray.get([slow, ray.put(1)], timeout=0)
    (tmp_path / "gate").touch()


@pytest.fixture
def lock_that_is_given_up_only() -> Iterator[None]:
    """Python never asks a thread to let go of the interpreter's lock: others run where it lets go by itself."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(600)
    yield
    sys.setswitchinterval(usual)


def waits_until_others_ran(timeout: float | None) -> int:
    """How often this thread is told the same until another, which has to run in between, has run 100 times."""
    reference, asked, answered, waits = ray.put(1), threading.Semaphore(0), [], 0

    def answer() -> None:
        for _ in range(100):
            asked.acquire()
            answered.append(None)

    thread = threading.Thread(target=answer)
    thread.start()
    for number in range(100):
        asked.release()
        while len(answered) == number:
            assert ray.wait([reference], timeout=timeout) == ([reference], [])
            waits += 1
    thread.join()
    return waits


@pytest.mark.usefixtures("lock_that_is_given_up_only")
@pytest.mark.parametrize("timeout", [None, 0.1])
def test_who_is_told_the_same_again_lets_other_threads_run(timeout) -> None:
    # One wait each; a thread that is not let run needs hundreds. On a busy machine the other may be late once.
    assert min(waits_until_others_ran(timeout) for _ in range(5)) < 200


def seconds_of(waits: list[list[ray.ObjectRef]], timeout: float | None) -> float:
    began = time.perf_counter()
    for one in waits:
        assert ray.wait(one, timeout=timeout) == (one, [])
    return time.perf_counter() - began


def test_only_an_answer_that_is_repeated_takes_a_moment() -> None:
    one, two = [ray.put(1)], [ray.put(2)]
    repeated = seconds_of([one] * 1_000, None)
    # 0.2 ms each, unless something came meanwhile.
    assert repeated > 0.1
    assert seconds_of([one, two] * 500, None) < repeated / 3, "another answer than the last one"
    assert seconds_of([one] * 1_000, 0) < repeated / 3, "who would not wait does not"


def test_a_loop_over_what_is_ready_is_never_held_up() -> None:
    references = [ray.put(number) for number in range(300)]
    one = references[:1]
    held_up = seconds_of([one] * 300, None)
    began = time.perf_counter()
    while references:
        ready, references = ray.wait(references)
        assert len(ready) == 1
    assert time.perf_counter() - began < held_up / 2
