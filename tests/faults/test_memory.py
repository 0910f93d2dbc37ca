"""Memory that is short: in a container's limits, what spills, who is ended, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from control_groups import Group


@pytest.fixture
def group() -> Iterator[Callable[[int], Group]]:
    made: list[Group] = []

    def make(mebibytes: int) -> Group:
        made.append(Group(mebibytes))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_container_offers_what_it_has_and_spills_before_its_limit(group) -> None:
    """Ten times 40 MiB in a container of 400 MiB, on a machine that has much more."""
    container = group(400)
    output = container.run(
        """if True:
        import numpy as np, ray
        ray.init(num_cpus=1)
        offered = ray.cluster_resources()
        assert 0 < offered["memory"] < 240 << 20, offered
        assert 0 < offered["object_store_memory"] < 120 << 20, offered
        references = [ray.put(np.full(5 << 20, number, dtype=float)) for number in range(10)]
        print(sum(int(ray.get(reference)[0]) for reference in references))
        """
    )
    assert output.split()[-1] == "45", output
    assert container.kills() == 0


def test_a_store_that_was_asked_to_be_too_large_shrinks_before_the_limit(group) -> None:
    """The store may take 4 GiB by its user's word; the container has 400 MiB, of which a task takes 150."""
    container = group(400)
    output = container.run(
        """if True:
        import numpy as np, ray
        ray.init(num_cpus=1, object_store_memory=4 << 30)

        @ray.remote
        class Taker:
            def take(self):
                self.taken = bytearray(150 << 20)
                self.taken[:: 4096] = b"1" * len(self.taken[:: 4096])

        references = [ray.put(np.full(2 << 20, number, dtype=float)) for number in range(10)]
        taker = Taker.remote()
        ray.get(taker.take.remote())
        references += [ray.put(np.full(2 << 20, number, dtype=float)) for number in range(10, 20)]
        print(sum(int(ray.get(reference)[0]) for reference in references))
        """
    )
    assert output.split()[-1] == "190", output
    assert container.kills() == 0


HOG = """if True:
        import os, re, sys, time
        import ray
        from ray.exceptions import ActorDiedError, OutOfMemoryError

        def grow():
            held = []
            while True:
                held.append(bytearray(2 << 20))
                held[-1][::4096] = b"x" * len(held[-1][::4096])
                time.sleep(0.01)

        def told(error):
            text = str(error)
            assert len(re.findall(r"[0-9.]+ [MG]iB", text)) >= 2, text
            assert "memory" in text and "or give the node more" in text, text
            return text
"""


def test_a_hog_is_told_why_it_ended_and_others_are_right(group) -> None:
    output = group(400).run(
        HOG
        + """
        ray.init(num_cpus=3)
        hog = ray.remote(grow).remote()

        @ray.remote
        def honest(number):
            time.sleep(0.2)
            return number * number

        honest_results = [honest.remote(number) for number in range(20)]
        try:
            ray.get(hog)
        except OutOfMemoryError as error:
            text = told(error)
        assert "`grow`" in text, text
        assert ray.get(honest_results) == [number * number for number in range(20)]
        once = ray.remote(max_retries=0)(grow).remote()
        try:
            ray.get(once)
        except OutOfMemoryError as error:
            told(error)
            print("told twice")
        """
    )
    assert output.split()[-2:] == ["told", "twice"], output


def test_an_actor_that_takes_all_memory_dies_with_the_reason_and_restarts(group) -> None:
    output = group(400).run(
        HOG
        + """
        ray.init(num_cpus=1)

        @ray.remote(max_restarts=1)
        class Hog:
            def grow(self):
                grow()

            def pid(self):
                return os.getpid()

        hog = Hog.remote()
        first = ray.get(hog.pid.remote())
        for _ in range(2):
            try:
                ray.get(hog.grow.remote())
            except ray.exceptions.RayActorError as error:
                told(error)
            else:
                raise AssertionError("it did not end")
            if first is not None:
                while True:
                    try:
                        assert ray.get(hog.pid.remote()) != first
                        break
                    except ray.exceptions.ActorUnavailableError:
                        pass
                first = None
        try:
            ray.get(hog.pid.remote())
        except ActorDiedError as error:
            told(error)
            print("dead")
        """
    )
    assert output.split()[-1] == "dead", output


def test_without_the_monitor_the_kernel_ends_it_and_the_error_says_so(group) -> None:
    output = group(300).run(
        HOG
        + """
        ray.init(num_cpus=1)
        try:
            ray.get(ray.remote(max_retries=1)(grow).remote())
        except OutOfMemoryError as error:
            assert "the kernel killed it" in told(error)
            print("by the kernel")
        """,
        RAY_memory_monitor_refresh_ms="0",
    )
    assert output.split()[-3:] == ["by", "the", "kernel"], output


def test_workers_go_before_daemon_and_driver_where_the_kernel_has_to_choose(two_cpus) -> None:
    import ray

    def score(pid="self") -> int:
        with open(f"/proc/{pid}/oom_score_adj") as file:
            return int(file.read())

    workers = ray.get([ray.remote(score).remote() for _ in range(2)])
    assert workers == [1000, 1000]
    assert score() < 1000
