"""The mixed load: each kind of work, its result computed without the runtime, and the errors that it may legally end with.

A kind is a generator: it starts its work, yields, and then checks what came of it. It raises `Wrong` where a result is
not what it must be; an error that is not among the legal ones goes through as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import diary
import numpy
from daemons import OURS
from ticket import Ticket, Wrong

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

#: How long anything may take, faults and all, in seconds.
PATIENCE_S = 60.0
#: What a process that dies with its machine may make of a call that is not run again.
CRASHES = (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError)
SHARES = [0.25, 0.3, 0.4, 0.5, 0.5, 0.7, 1, 1, 2]
#: More than rides in a reply, so that it lies in the store of the node that made it.
NUMBERS = 40_000


def mixed(value: int) -> int:
    """What the load computes: cheap, and different for each input."""
    return (value * 2_654_435_761 + 12_345) % (1 << 32)


def numbers_of(value: int) -> Any:
    """A large array, and different for each input."""
    return numpy.arange(NUMBERS, dtype=numpy.int64) * (value % 1000 + 1) + value


def grown(numbers: Any, value: int) -> Any:
    """What a link of a chain makes of the array before it."""
    return numbers * 3 + value


@ray.remote(max_retries=-1)
def mix(key: str, value: int) -> int:
    diary.say("began", key)
    time.sleep(value % 7 / 200)
    diary.say("done", key)
    return mixed(value)


@ray.remote(max_retries=-1, num_cpus=0)
def mix_on_devices(key: str, value: int, share: float) -> int:
    diary.say("began", key)
    diary.say_what_is_held(key, share, ray.get_gpu_ids())
    ends = time.monotonic() + value % 50 / 1000
    while time.monotonic() < ends:
        diary.say("alive", key)
        time.sleep(0.002)
    diary.say("done", key)
    diary.say("released", key)
    return mixed(value)


@ray.remote(max_retries=-1, scheduling_strategy="SPREAD")
def make_numbers(key: str, value: int) -> Any:
    diary.say("began", key)
    made = numbers_of(value)
    diary.say("done", key)
    return made


@ray.remote(max_retries=-1, scheduling_strategy="SPREAD")
def grow(key: str, numbers: Any, value: int) -> Any:
    diary.say("began", key)
    made = grown(numbers, value)
    diary.say("done", key)
    return made


@ray.remote(max_retries=-1, scheduling_strategy="SPREAD")
def add_up(key: str, numbers: Any) -> int:
    diary.say("began", key)
    total = int(numbers.sum())
    diary.say("done", key)
    return total


@ray.remote(max_retries=-1, scheduling_strategy="SPREAD")
def put_numbers(key: str, value: int) -> list[Any]:
    diary.say("began", key)
    return [ray.put(numbers_of(value))]


@ray.remote(max_retries=-1)
def branch(key: str, depth: int, value: int) -> int:
    diary.say("began", key)
    if depth == 0:
        return mixed(value)
    inner = [branch.remote(f"{key}.{index}", depth - 1, value + index) for index in range(2)]
    return sum(ray.get(inner)) % (1 << 32)


def branched(depth: int, value: int) -> int:
    """What `branch` returns."""
    return mixed(value) if depth == 0 else sum(branched(depth - 1, value + index) for index in range(2)) % (1 << 32)


@ray.remote(max_retries=-1, num_returns="streaming")
def stream(key: str, value: int, count: int) -> Iterator[Any]:
    diary.say("began", key)
    for index in range(count):
        time.sleep(0.005)
        yield numbers_of(value + index) if index % 4 == 3 else mixed(value + index)


@ray.remote(num_cpus=0, resources={OURS: 0.001})
class Account:
    """Tells of each call which one came before it in this life."""

    def __init__(self, key: str, share: float = 0) -> None:
        self.key, self.last, self.born = key, -1, time.monotonic_ns()
        diary.say("made", key)
        if share:
            diary.say_what_is_held(key, share, ray.get_gpu_ids())

    def step(self, index: int, value: int) -> tuple[int, int, int]:
        diary.say("alive", self.key)
        before, self.last = self.last, index
        time.sleep(value % 5 / 500)
        return self.born, before, mixed(value)


def get(reference: Any) -> Any:
    """Its value; nothing may take longer than [`PATIENCE_S`]."""
    return ray.get(reference, timeout=PATIENCE_S)


def expect(what: str, found: Any, wanted: Any) -> None:
    """Raises `Wrong` where it is not what was computed without the runtime."""
    if found != wanted:
        raise Wrong(f"{what} is {found!r:.200}, must be {wanted!r:.200}")


def value_or(ticket: Ticket, reference: Any, legal: tuple[type[Exception], ...]) -> Any:
    """The value, or the legal error, which is counted."""
    try:
        return get(reference)
    except ray.exceptions.GetTimeoutError:
        raise
    except legal as error:
        ticket.failed_legally(error)
        return error


def tasks(ticket: Ticket) -> Iterator[None]:
    values = [ticket.number() for _ in range(ticket.chance.randrange(5, 40))]
    made = [mix.remote(ticket.key(index), value) for index, value in enumerate(values)]
    yield
    expect("what tasks return", get(made), [mixed(value) for value in values])


def tasks_on_devices(ticket: Ticket) -> Iterator[None]:
    values = [ticket.number() for _ in range(ticket.chance.randrange(2, 6))]
    shares = [ticket.chance.choice(SHARES) for _ in values]
    made = [
        mix_on_devices.options(num_gpus=share).remote(ticket.key(index), value, share)
        for index, (value, share) in enumerate(zip(values, shares, strict=True))
    ]
    yield
    expect("what tasks on devices return", get(made), [mixed(value) for value in values])


def chain(ticket: Ticket) -> Iterator[None]:
    first, links = ticket.number(), [ticket.number() for _ in range(ticket.chance.randrange(2, 5))]
    made, wanted = make_numbers.remote(ticket.key(0), first), numbers_of(first)
    for index, value in enumerate(links):
        made, wanted = grow.remote(ticket.key(index + 1), made, value), grown(wanted, value)
    yield
    expect("the end of a chain", int(get(made).sum()), int(wanted.sum()))


def tree(ticket: Ticket) -> Iterator[None]:
    depth, value = ticket.chance.randrange(1, 4), ticket.number()
    made = branch.remote(ticket.key(0), depth, value)
    yield
    expect("the root of a tree", get(made), branched(depth, value))


def many_readers(ticket: Ticket) -> Iterator[None]:
    value = ticket.number()
    made = make_numbers.remote(ticket.key(0), value)
    read = [add_up.remote(ticket.key(index), made) for index in range(1, 5)]
    yield
    expect("what readers of one object add up", set(get(read)), {int(numbers_of(value).sum())})


def lasting(ticket: Ticket) -> Iterator[None]:
    values = [ticket.number() for _ in range(6)]
    made = [make_numbers.remote(ticket.key(index), value) for index, value in enumerate(values)]
    yield
    ready, _ = ray.wait(made, num_returns=len(made), timeout=PATIENCE_S, fetch_local=False)
    expect("how many of them are there", len(ready), len(made))
    # Meanwhile nodes die, and what lies on them only is made anew.
    time.sleep(ticket.chance.uniform(1, 4))
    read = [add_up.remote(ticket.key(index + 10), one) for index, one in enumerate(made)]
    expect("what readers add up later", get(read), [int(numbers_of(value).sum()) for value in values])


def put_here(ticket: Ticket) -> Iterator[None]:
    value = ticket.number()
    made = ray.put(numbers_of(value))
    read = [add_up.remote(ticket.key(index), made) for index in range(3)]
    yield
    # It lies with the head: only where that dies is it lost.
    legal = ray.exceptions.ObjectLostError if ticket.heads_die else ()
    for one in read:
        found = value_or(ticket, one, (legal,) if legal else ())
        if not isinstance(found, Exception):
            expect("what is read of an object that was put", found, int(numbers_of(value).sum()))


def put_elsewhere(ticket: Ticket) -> Iterator[None]:
    value = ticket.number()
    made = put_numbers.remote(ticket.key(0), value)
    yield
    # Nobody can make it anew: it may go with the worker that owns it, or with its only node.
    legal = (ray.exceptions.ObjectLostError,)
    inner = value_or(ticket, made, legal)
    if not isinstance(inner, Exception):
        found = value_or(ticket, inner[0], legal)
        if not isinstance(found, Exception):
            expect("what a task has put", int(found.sum()), int(numbers_of(value).sum()))


def generator(ticket: Ticket) -> Iterator[None]:
    value, count = ticket.number(), ticket.chance.randrange(3, 20)
    made = stream.remote(ticket.key(0), value, count)
    yield
    ends, found = time.monotonic() + PATIENCE_S, []
    for reference in made:
        item = ray.get(reference, timeout=max(ends - time.monotonic(), 1))
        found.append(item if isinstance(item, int) else int(item.sum()))
    small, large = lambda at: mixed(value + at), lambda at: int(numbers_of(value + at).sum())
    expect("the items", found, [large(at) if at % 4 == 3 else small(at) for at in range(count)])


def fragile(ticket: Ticket) -> Iterator[None]:
    values = [ticket.number() for _ in range(8)]
    made = [mix.options(max_retries=0).remote(ticket.key(index), value) for index, value in enumerate(values)]
    yield
    for one, value in zip(made, values, strict=True):
        found = value_or(ticket, one, CRASHES)
        if not isinstance(found, Exception):
            expect("what a task returns that is not retried", found, mixed(value))


def cancelled(ticket: Ticket) -> Iterator[None]:
    values = [ticket.number() for _ in range(8)]
    made = [mix.remote(ticket.key(index), value) for index, value in enumerate(values)]
    for one in ticket.chance.sample(made, 4):
        ray.cancel(one, force=ticket.chance.random() < 0.3)
    yield
    legal = (ray.exceptions.TaskCancelledError, ray.exceptions.WorkerCrashedError)
    for one, value in zip(made, values, strict=True):
        found = value_or(ticket, one, legal)
        if not isinstance(found, Exception):
            expect("what a task returns that may be cancelled", found, mixed(value))


def _actor(ticket: Ticket, calls: int, **options: Any) -> tuple[list[Any], list[int]]:
    share = ticket.chance.choice([0, 0, 0.3, 0.4, 0.5, 1])
    actor = Account.options(num_gpus=share, **options).remote(ticket.key(0), share)
    values = [ticket.number() for _ in range(calls)]
    return [actor.step.remote(index, value) for index, value in enumerate(values)], values


def check_order(found: list[Any], values: list[int], may_run_again: bool = False) -> None:
    """Checks the results of an actor's calls, and that it ran them in the order made.

    A call with retries runs at least once: where the stream to the actor broke after it ran and before its answer came,
    it is sent again, and so is each after it. Then the actor sees the whole row of them once more, in order.
    """
    again_until = -1
    for index, (one, value) in enumerate(zip(found, values, strict=True)):
        if isinstance(one, Exception):
            continue
        _, before, told = one
        expect("what a method returns", told, mixed(value))
        if again_until >= index > before and before not in (index - 1, -1):
            raise Wrong(f"call {index} of an actor was sent again, and ran after call {before} of the same caller")
        if before < index:
            continue
        if not may_run_again:
            raise Wrong(f"call {index} of an actor ran after call {before} of the same caller")
        again_until = before


def actor_that_comes_back(ticket: Ticket) -> Iterator[None]:
    made, values = _actor(ticket, ticket.chance.randrange(5, 25), max_restarts=-1, max_task_retries=-1)
    yield
    check_order(get(made), values, may_run_again=True)


def actor_whose_calls_are_lost(ticket: Ticket) -> Iterator[None]:
    made, values = _actor(ticket, 15, max_restarts=-1)
    yield
    legal = (ray.exceptions.ActorUnavailableError,)
    check_order([value_or(ticket, one, legal) for one in made], values)


def actor_that_dies(ticket: Ticket) -> Iterator[None]:
    made, values = _actor(ticket, 15)
    yield
    # A driver that loses the head loses its streams to other machines with it, and no actor there.
    cut_off = (ray.exceptions.ActorUnavailableError,) if ticket.heads_die else ()
    found = [value_or(ticket, one, (ray.exceptions.ActorDiedError, *cut_off)) for one in made]
    check_order(found, values)
    kinds = [isinstance(one, ray.exceptions.ActorDiedError) for one in found if not isinstance(one, cut_off)]
    expect("whether calls after a death fail", kinds, sorted(kinds))


def group(ticket: Ticket) -> Iterator[None]:
    strategy = ticket.chance.choice(["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"])
    bundle = ticket.chance.choice([{"CPU": 1}, {"CPU": 1, "GPU": 0.5}, {"GPU": 1}])
    made = placement_group([bundle, bundle], strategy=strategy)
    try:
        yield
        get(made.ready())
        told = placement_group_table(made)
        nodes = [node for node in told["bundles_to_node_id"].values() if node]
        if told["state"] == "CREATED":
            expect(f"how many bundles of a {strategy} group are placed", len(nodes), 2)
            if strategy.startswith("STRICT"):
                expect(f"the nodes of a {strategy} group", len(set(nodes)), 1 if strategy == "STRICT_PACK" else 2)
        values = [ticket.number() for _ in range(4)]
        running = [_within(ticket, made, bundle, index, value) for index, value in enumerate(values)]
        expect("what runs within a group returns", get(running), [mixed(value) for value in values])
    finally:
        remove_placement_group(made)


def _within(ticket: Ticket, made: Any, bundle: dict[str, float], index: int, value: int) -> Any:
    place = PlacementGroupSchedulingStrategy(made, placement_group_bundle_index=index % 2)
    share = bundle.get("GPU", 0)
    if share:
        options = mix_on_devices.options(num_gpus=share, num_cpus=0, scheduling_strategy=place)
        return options.remote(ticket.key(index), value, share)
    return mix.options(num_cpus=1, scheduling_strategy=place).remote(ticket.key(index), value)


#: What the load is made of: one of these is taken at random, again and again.
KINDS: list[Callable[[Ticket], Iterator[None]]] = [
    tasks, tasks_on_devices, tasks_on_devices, chain, chain, tree, many_readers, lasting, lasting, put_here, put_elsewhere, generator,
    fragile, cancelled, actor_that_comes_back, actor_that_comes_back, actor_whose_calls_are_lost, actor_that_dies,
    group, group,
]  # fmt: skip
