"""What is measured: each case is the same text for Oxiray and for Ray, through `import ray`.

Run as `cases.py NAME` it measures one case in this fresh process and prints one JSON object: `value`, and what else is
worth knowing. Times cover what a caller waits for; making the arrays, starting the session and ending it are outside,
except in the cases that are about them.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# In the environment of every process of a session, so that they can be told from the rest of the machine's.
SESSION_MARK = "OXIRAY_BENCH_SESSION"
ARRAY_BYTES = 100 << 20
# How long objects are put that are all kept.
KEEPING_S = 90


@dataclass(frozen=True)
class Case:
    """One row of the table: how it is measured, in which unit, and how many times better Oxiray is wanted to be."""

    title: str
    unit: str
    wanted_ratio: float
    more_is_better: bool
    measure: Callable[[Any], dict[str, Any]]


def rate(call: Callable[[], None], seconds: float, warm_calls: int = 100) -> dict[str, Any]:
    """Calls per second over about this long, after a warm-up."""
    for _ in range(warm_calls):
        call()
    calls, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        for _ in range(10):
            call()
        calls += 10
    return {"value": calls / elapsed, "calls": calls}


def init_to_result(ray: Any) -> dict[str, Any]:
    def one() -> int:
        return 1

    began = time.perf_counter()
    ray.init()
    result = ray.get(ray.remote(one).remote())
    assert result == 1
    return {"value": (time.perf_counter() - began) * 1e3}


def task_sync(ray: Any) -> dict[str, Any]:
    ray.init()

    @ray.remote
    def nothing() -> None:
        pass

    return rate(lambda: ray.get(nothing.remote()), 2)


def tasks_in_flight(ray: Any) -> dict[str, Any]:
    ray.init()

    @ray.remote
    def nothing() -> None:
        pass

    def tasks_per_second() -> float:
        began = time.perf_counter()
        ray.get([nothing.remote() for _ in range(5000)])
        return 5000 / (time.perf_counter() - began)

    ray.get([nothing.remote() for _ in range(500)])
    # One round takes some ten milliseconds here: where a processor is taken away meanwhile, it says nothing.
    rates = sorted(tasks_per_second() for _ in range(9))
    return {"value": statistics.median(rates), "slowest": rates[0], "fastest": rates[-1]}


def actor_sync(ray: Any) -> dict[str, Any]:
    ray.init()

    @ray.remote
    class Actor:
        def nothing(self) -> None:
            pass

    actor = Actor.remote()
    return rate(lambda: ray.get(actor.nothing.remote()), 2)


def two_daemons(ray: Any) -> Any:
    """A head without processors, and a node that has them: Oxiray's over TLS, Ray's as it does by default."""
    from ray.cluster_utils import Cluster

    Cluster.over_network = True
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    cluster.add_node(num_cpus=2, resources={"there": 2})
    ray.init(address=cluster.address)
    return cluster


def task_on_another_node(ray: Any) -> dict[str, Any]:
    cluster = two_daemons(ray)

    @ray.remote(resources={"there": 0.001})
    def nothing() -> None:
        pass

    measured = rate(lambda: ray.get(nothing.remote()), 2)
    ray.shutdown()
    cluster.shutdown()
    return measured


def actor_on_another_node(ray: Any) -> dict[str, Any]:
    cluster = two_daemons(ray)

    @ray.remote(resources={"there": 0.001})
    class Actor:
        def nothing(self) -> None:
            pass

    actor = Actor.remote()
    measured = rate(lambda: ray.get(actor.nothing.remote()), 2)
    ray.shutdown()
    cluster.shutdown()
    return measured


def transfer(ray: Any, size: int, count: int) -> dict[str, Any]:
    """Bytes in a second from one node's store to another's: objects made there, each read once here, one by one."""
    import numpy
    from ray.cluster_utils import Cluster

    Cluster.over_network = True
    store = {"object_store_memory": 4 << 30}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "resources": {"here": 1}} | store)
    cluster.add_node(num_cpus=1, resources={"there": 1}, **store)
    ray.init(address=cluster.address)

    @ray.remote(resources={"there": 1}, num_cpus=0)
    def make(number: int, size: int) -> Any:
        return numpy.full(size, number, dtype=numpy.uint8)

    @ray.remote(resources={"here": 1}, num_cpus=0)
    def read(array: Any, number: int) -> bool:
        return bool(array[0] == number and array[-1] == number)

    def pass_on(number: int, size: int) -> float:
        array = make.remote(number, size)
        ray.wait([array], fetch_local=False)
        began = time.perf_counter()
        assert ray.get(read.remote(array, number))
        return time.perf_counter() - began

    for number in range(3):
        pass_on(number, 8 << 20)
    seconds = [pass_on(number, size) for number in range(count)]
    ray.shutdown()
    cluster.shutdown()
    rates = sorted(size / one / 1e9 for one in seconds)
    return {"value": count * size / sum(seconds) / 1e9, "slowest": rates[0], "fastest": rates[-1]}


def transfer_of_arrays(ray: Any) -> dict[str, Any]:
    return transfer(ray, ARRAY_BYTES, 20)


def transfer_of_a_gibibyte(ray: Any) -> dict[str, Any]:
    return transfer(ray, 1 << 30, 3)


def calls_in_flight(ray: Any, actor: Any, calls: int) -> dict[str, Any]:
    """How many calls of an actor, all under way at once, end in a second."""
    ray.get([actor.nothing.remote() for _ in range(1000)])
    began = time.perf_counter()
    ray.get([actor.nothing.remote() for _ in range(calls)])
    return {"value": calls / (time.perf_counter() - began)}


def actor_in_flight(ray: Any) -> dict[str, Any]:
    ray.init()

    @ray.remote
    class Actor:
        def nothing(self) -> None:
            pass

    return calls_in_flight(ray, Actor.remote(), 10000)


def async_actor_calls(ray: Any) -> dict[str, Any]:
    ray.init()

    @ray.remote
    class Actor:
        async def nothing(self) -> None:
            pass

    return calls_in_flight(ray, Actor.remote(), 5000)


def threaded_actor_calls(ray: Any) -> dict[str, Any]:
    ray.init()

    @ray.remote(max_concurrency=16)
    class Actor:
        def nothing(self) -> None:
            pass

    return calls_in_flight(ray, Actor.remote(), 5000)


def calls_from_many_to_many(ray: Any) -> dict[str, Any]:
    """Two tasks at once, each with 5,000 calls under way, spread over two actors."""
    ray.init(num_cpus=2)

    @ray.remote(num_cpus=0)
    class Actor:
        def nothing(self) -> None:
            pass

    @ray.remote
    def call_all(actors: list[Any], calls: int) -> None:
        ray.get([actors[number % len(actors)].nothing.remote() for number in range(calls)])

    actors = [Actor.remote() for _ in range(2)]
    ray.get([call_all.remote(actors, 500) for _ in range(2)])
    began = time.perf_counter()
    ray.get([call_all.remote(actors, 5000) for _ in range(2)])
    return {"value": 2 * 5000 / (time.perf_counter() - began)}


def wait_one_by_one(ray: Any) -> dict[str, Any]:
    """How often in a second a thousand tasks are made and awaited one by one, as programs do that act on each result."""
    ray.init()

    @ray.remote
    def nothing() -> None:
        pass

    def round_of_tasks() -> None:
        waiting = [nothing.remote() for _ in range(1000)]
        while waiting:
            _, waiting = ray.wait(waiting)

    round_of_tasks()
    rounds, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < 3:
        round_of_tasks()
        rounds += 1
    return {"value": rounds / elapsed, "rounds": rounds}


def get_10000_references(ray: Any) -> dict[str, Any]:
    ray.init()

    @ray.remote
    def make() -> list[Any]:
        return [ray.put(1) for _ in range(10000)]

    holder = make.remote()
    assert len(ray.get(holder)) == 10000
    gets, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < 3:
        ray.get(holder)
        gets += 1
    return {"value": gets / elapsed, "gets": gets}


def task_with_1mib(ray: Any) -> dict[str, Any]:
    import numpy

    ray.init()
    array = numpy.random.default_rng(1).integers(0, 255, 1 << 20, dtype=numpy.uint8)

    @ray.remote
    def size(array: Any) -> int:
        return array.nbytes

    assert ray.get(size.remote(array)) == 1 << 20
    return rate(lambda: ray.get(size.remote(array)), 2, warm_calls=50)


def generator_items(ray: Any) -> dict[str, Any]:
    """Small items of one task, each fetched as it comes."""
    ray.init()

    @ray.remote
    def count(number: int) -> Any:
        for item in range(number):
            yield item

    def read(number: int) -> None:
        for expected, reference in enumerate(count.remote(number)):
            assert ray.get(reference) == expected

    read(1000)
    number, began = 10_000, time.perf_counter()
    read(number)
    return {"value": number / (time.perf_counter() - began)}


def put_get_small(ray: Any) -> dict[str, Any]:
    ray.init()
    return rate(lambda: ray.get(ray.put(0)), 2)


def put_large(ray: Any) -> dict[str, Any]:
    """Four gigabytes from the session's start, each reference dropped before the next put.

    What a program meets: memory that was never touched at first (slow on every machine), touched memory later, as far
    as the store uses it again.
    """
    import numpy

    ray.init()
    array = numpy.random.default_rng(1).integers(0, 255, ARRAY_BYTES, dtype=numpy.uint8)
    seconds = []
    for _ in range(40):
        began = time.perf_counter()
        reference = ray.put(array)
        seconds.append(time.perf_counter() - began)
        del reference
    reference = ray.put(array)
    assert numpy.array_equal(ray.get(reference), array)
    rates = sorted(ARRAY_BYTES / one / 1e9 for one in seconds)
    return {"value": 40 * ARRAY_BYTES / sum(seconds) / 1e9, "slowest": rates[0], "fastest": rates[-1]}


MIDDLING_BYTES = 101 << 10


def put_middling(ray: Any) -> dict[str, Any]:
    """Objects just above what travels inside of messages, all kept."""
    import numpy

    ray.init(object_store_memory=4 << 30)
    array = numpy.random.default_rng(1).integers(0, 255, MIDDLING_BYTES, dtype=numpy.uint8)
    warm = [ray.put(array) for _ in range(100)]
    began = time.perf_counter()
    kept = [ray.put(array) for _ in range(10_000)]
    elapsed = time.perf_counter() - began
    assert len(warm) + len(kept) == 10_100
    return {"value": len(kept) / elapsed}


def get_middling(ray: Any) -> dict[str, Any]:
    """The same objects read in one `get`, each in place."""
    import numpy

    ray.init(object_store_memory=4 << 30)
    kept = [ray.put(numpy.full(MIDDLING_BYTES, number % 251, dtype=numpy.uint8)) for number in range(10_000)]
    ray.get(kept[:100])
    began = time.perf_counter()
    values = ray.get(kept)
    elapsed = time.perf_counter() - began
    assert all(value[-1] == number % 251 for number, value in enumerate(values))
    return {"value": len(kept) / elapsed}


def round_trip(ray: Any, value: Any) -> dict[str, Any]:
    """How often in a second a value is put and fetched again."""
    ray.init()
    fetched = ray.get(ray.put(value))
    same = value.equals(fetched) if hasattr(value, "equals") else value == fetched
    assert same and type(fetched) is type(value), "another value came back"
    del fetched
    calls, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < 3:
        ray.get(ray.put(value))
        calls += 1
    return {"value": calls / elapsed}


def table() -> dict[str, list[Any]]:
    """200,000 rows of a number, a name and a measure."""
    rows = range(200_000)
    return {"id": list(rows), "name": [f"row {row}" for row in rows], "measure": [row / 7 for row in rows]}


def put_get_bytes(ray: Any) -> dict[str, Any]:
    return round_trip(ray, os.urandom(10 << 20))


def put_get_dict(ray: Any) -> dict[str, Any]:
    return round_trip(ray, {number: str(number) for number in range(300_000)})


def put_get_texts(ray: Any) -> dict[str, Any]:
    return round_trip(ray, [f"text {number}" for number in range(300_000)])


def put_get_tuples(ray: Any) -> dict[str, Any]:
    return round_trip(ray, list(zip(*table().values(), strict=True)))


def put_get_frame(ray: Any) -> dict[str, Any]:
    import pandas

    return round_trip(ray, pandas.DataFrame(table()))


def put_get_arrow(ray: Any) -> dict[str, Any]:
    import pyarrow

    return round_trip(ray, pyarrow.table(table()))


def keep_150000(ray: Any) -> dict[str, Any]:
    """How many objects of 101 KiB are kept at once in a store of 8 GiB, the rest spilled, with 1,024 descriptors."""
    import resource

    import numpy

    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    ray.init(num_cpus=1, object_store_memory=8 << 30)
    array = numpy.zeros(MIDDLING_BYTES, dtype=numpy.uint8)
    kept: list[Any] = []
    began = time.perf_counter()
    # A store that stops halfway is counted as far as it came.
    with contextlib.suppress(Exception):
        while len(kept) < 150_000 and time.perf_counter() - began < KEEPING_S:
            array[0] = len(kept) % 251
            kept.append(ray.put(array))
    seconds = time.perf_counter() - began
    checked = range(0, len(kept), 1499)
    assert all(ray.get(kept[number])[0] == number % 251 for number in checked)
    return {"value": len(kept), "seconds": seconds}


def gpu_task(ray: Any) -> dict[str, Any]:
    ray.init(num_gpus=1)

    @ray.remote(num_gpus=1)
    def process() -> int:
        return os.getpid()

    ray.get(process.remote())
    pids, began = [], time.perf_counter()
    while (elapsed := time.perf_counter() - began) < 6 and len(pids) < 1000:
        pids.append(ray.get(process.remote()))
    assert len(set(pids)) == len(pids), "two tasks met in one process"
    return {"value": len(pids) / elapsed, "tasks": len(pids)}


def gpu_tasks_after_a_pause(ray: Any) -> dict[str, Any]:
    """Rounds of ten tasks, one after the other, each round after a pause, and beside them the tasks without one."""
    ray.init(num_gpus=1)

    @ray.remote(num_gpus=1)
    def process() -> int:
        return os.getpid()

    def tasks_per_second(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            ray.get(process.remote())
        return count / (time.perf_counter() - began)

    tasks_per_second(10)
    rates = []
    for _ in range(3):
        time.sleep(5)
        rates.append(tasks_per_second(10))
    return {"value": statistics.median(rates), "without_pause": tasks_per_second(20)}


def gpu_actor(ray: Any) -> dict[str, Any]:
    ray.init(num_gpus=1)

    @ray.remote(num_gpus=1)
    class Actor:
        def process(self) -> int:
            return os.getpid()

    def cycle() -> int:
        actor = Actor.remote()
        pid = ray.get(actor.process.remote())
        ray.kill(actor)
        return pid

    cycle()
    pids, began = [], time.perf_counter()
    while (elapsed := time.perf_counter() - began) < 6 and len(pids) < 500:
        pids.append(cycle())
    assert len(set(pids)) == len(pids), "two actors met in one process"
    return {"value": elapsed / len(pids) * 1e3, "cycles": len(pids)}


def placement_groups(ray: Any) -> dict[str, Any]:
    ray.init(resources={"custom": 100})
    from ray.util import placement_group, remove_placement_group

    def cycle() -> None:
        groups = [placement_group([{"custom": 0.001}]) for _ in range(100)]
        assert all([group.wait(timeout_seconds=30) for group in groups])
        for group in groups:
            remove_placement_group(group)

    cycle()
    cycles, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < 3:
        cycle()
        cycles += 1
    return {"value": cycles * 100 / elapsed, "cycles": cycles}


def idle_memory(ray: Any) -> dict[str, Any]:
    """Resident memory of every process of the session but this driver, and but Ray's idle workers.

    What Oxiray keeps ready to fork workers from is counted as the runtime's, workers forked ahead of time too.
    """
    ray.init()
    # Ray's agents load themselves for seconds after `init` has returned; both are given the same time.
    time.sleep(8)
    mark = f"{SESSION_MARK}={os.environ[SESSION_MARK]}".encode()
    marked, parents = {os.getpid()}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                marked.add(int(folder.name))
        except OSError:
            continue
    grew = True
    while grew:
        children = {pid for pid, parent in parents.items() if parent in marked and pid not in marked}
        marked |= children
        grew = bool(children)
    counted: dict[str, float] = {}
    proportional_kb = 0
    for pid in marked - {os.getpid()}:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            fields = dict(
                line.split(":", 1)
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
                if ":" in line
            )
        except OSError:
            continue
        if command.startswith("ray::") or "default_worker.py" in command:
            continue
        counted[f"{pid} {command[:60]}"] = int(fields["Rss"].split()[0]) / 1024
        proportional_kb += int(fields["Pss"].split()[0])
    return {"value": sum(counted.values()), "proportional_mb": proportional_kb / 1024, "processes": counted}


def shares_on_two_machines(ray: Any) -> dict[str, Any]:
    """How many of eight actors that each want 0.4 of a GPU run on two machines of two GPUs, after 20 seconds at most."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 8, "num_gpus": 2})
    cluster.add_node(num_cpus=8, num_gpus=2)
    ray.init(address=cluster.address)

    @ray.remote(num_cpus=0, num_gpus=0.4)
    class Actor:
        def ready(self) -> bool:
            return True

    actors = [Actor.remote() for _ in range(8)]
    began = time.perf_counter()
    ready, waiting = ray.wait([actor.ready.remote() for actor in actors], num_returns=8, timeout=20)
    return {"value": len(ready), "waiting": len(waiting), "seconds": time.perf_counter() - began}


CASES = {
    "init": Case("`init()` until the first task's result", "ms", 25, False, init_to_result),
    "task-sync": Case("task, one after the other", "/s", 15, True, task_sync),
    "tasks-in-flight": Case("tasks, 5,000 in flight", "/s", 15, True, tasks_in_flight),
    "actor-sync": Case("actor call, one after the other", "/s", 15, True, actor_sync),
    "task-other-node": Case("task on another node, over TLS", "/s", 8, True, task_on_another_node),
    "actor-other-node": Case("actor call on another node, over TLS", "/s", 8, True, actor_on_another_node),
    "actor-in-flight": Case("actor calls, 10,000 in flight", "/s", 12, True, actor_in_flight),
    "async-actor": Case("calls of an async actor, 5,000 in flight", "/s", 10, True, async_actor_calls),
    "threaded-actor": Case("calls of an actor with 16 threads, 5,000 in flight", "/s", 10, True, threaded_actor_calls),
    "many-to-many": Case("two callers to two actors, 5,000 in flight each", "/s", 10, True, calls_from_many_to_many),
    "wait-1000": Case("1,000 tasks, awaited one by one with `wait`", "/s", 10, True, wait_one_by_one),
    "get-10000-refs": Case("`get` of an object that holds 10,000 references", "/s", 10, True, get_10000_references),
    "task-1mib-argument": Case("task with an argument of 1 MiB, one after the other", "/s", 10, True, task_with_1mib),
    "generator-items": Case("items of a generator, each fetched as it comes", "/s", 10, True, generator_items),
    "put-get-small": Case("`put` + `get` of a small object", "/s", 40, True, put_get_small),
    "put-get-bytes": Case("`put` + `get` of `bytes` of 10 MiB", "/s", 2, True, put_get_bytes),
    "put-get-dict": Case("`put` + `get` of a dict of 300,000 `int: str`", "/s", 1, True, put_get_dict),
    "put-get-texts": Case("`put` + `get` of a list of 300,000 `str`", "/s", 1, True, put_get_texts),
    "put-get-tuples": Case("`put` + `get` of a list of 200,000 `(int, str, float)`", "/s", 1, True, put_get_tuples),
    "put-get-frame": Case("`put` + `get` of a DataFrame of 200,000 rows, with text", "/s", 1, True, put_get_frame),
    "put-get-arrow": Case("`put` + `get` of an arrow table of 200,000 rows", "/s", 1, True, put_get_arrow),
    "put-large": Case("`put` of 100 MiB arrays", "GB/s", 3, True, put_large),
    "transfer-100mib": Case("objects of 100 MiB from node to node, over TLS", "GB/s", 2, True, transfer_of_arrays),
    "transfer-1gib": Case("objects of 1 GiB from node to node, over TLS", "GB/s", 2, True, transfer_of_a_gibibyte),
    "put-10000": Case("`put` of 10,000 arrays of 101 KiB, all kept", "/s", 4, True, put_middling),
    "get-10000": Case("`get` of 10,000 arrays of 101 KiB at once", "/s", 2, True, get_middling),
    "keep-150000": Case(
        "of 150,000 arrays of 101 KiB, those kept within 90 s with 1,024 descriptors", "objects", 1, True, keep_150000
    ),
    "gpu-task": Case("task with `num_gpus=1`, fresh process each", "/s", 100, True, gpu_task),
    "gpu-task-paused": Case(
        "the first ten tasks with `num_gpus=1` after a pause of 5 s", "/s", 50, True, gpu_tasks_after_a_pause
    ),
    "gpu-actor": Case("actor with `num_gpus=1`: create, call, kill", "ms", 60, False, gpu_actor),
    "placement-group": Case(
        "placement groups of one bundle: create, wait, remove, 100 at a time", "/s", 10, True, placement_groups
    ),
    "shares-on-two-machines": Case(
        "of 8 actors with 0.4 of a GPU on two machines of 2 GPUs, those that run within 20 s",
        "actors",
        1.01,
        True,
        shares_on_two_machines,
    ),
    "idle-memory": Case("resident memory of the idle runtime, no workers", "MB", 12, False, idle_memory),
}


def main() -> None:
    """Measure one case in this process."""
    import ray

    measured = CASES[sys.argv[1]].measure(ray)
    measured["version"] = ray.__version__
    print("RESULT " + json.dumps(measured), flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()
