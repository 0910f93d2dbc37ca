"""Options of methods and of calls: concurrency groups, limits, order, names, precedence."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
import ray
from ray.exceptions import PendingCallsLimitExceeded

pytestmark = pytest.mark.usefixtures("cluster")


class Grouped:
    def __init__(self) -> None:
        self.gate = threading.Event()
        self.meeting = threading.Barrier(2)
        self.order: list[int] = []

    @ray.method(concurrency_group="io")
    def wait(self) -> str:
        assert self.gate.wait(timeout=20)
        return threading.current_thread().name

    @ray.method(concurrency_group="compute")
    def meet(self) -> int:
        return self.meeting.wait(timeout=20)

    @ray.method(concurrency_group="io")
    def note(self, number: int) -> None:
        self.order.append(number)

    def open(self) -> list[int]:
        self.gate.set()
        return list(self.order)


def test_groups_run_beside_each_other_and_one_thread_keeps_its_order() -> None:
    grouped = ray.remote(concurrency_groups={"io": 1, "compute": 2})(Grouped).remote()
    blocked = [grouped.wait.remote() for _ in range(3)]
    notes = [grouped.note.remote(number) for number in range(20)]
    assert sorted(ray.get([grouped.meet.remote(), grouped.meet.remote()], timeout=20)) == [0, 1]
    ready, _ = ray.wait(notes, timeout=0)
    assert not ready, "their group's only thread is taken"
    # A call of the default group, into which any method can be called.
    assert ray.get(grouped.open.remote(), timeout=20) == []
    ray.get(blocked + notes, timeout=20)
    assert ray.get(grouped.open.remote()) == list(range(20))


def test_a_call_may_choose_its_group() -> None:
    grouped = ray.remote(concurrency_groups={"io": 1, "compute": 2})(Grouped).remote()
    blocked = grouped.wait.remote()
    assert ray.get(grouped.open.options(concurrency_group="compute").remote(), timeout=20) == []
    assert "io" in ray.get(blocked, timeout=20)
    with pytest.raises(ValueError, match="'nowhere'.*'io', 'compute'"):
        grouped.open.options(concurrency_group="nowhere")


def test_groups_as_a_list_and_with_default_threads() -> None:
    groups = [{"name": "io", "max_concurrency": 1}]
    grouped = ray.remote(concurrency_groups=groups, max_concurrency=2)(Pair).remote()
    first = grouped.meet.remote()
    assert sorted(ray.get([first, grouped.meet.remote()], timeout=20)) == [0, 1]


class Pair:
    def __init__(self) -> None:
        self.meeting = threading.Barrier(2)

    def meet(self) -> int:
        return self.meeting.wait(timeout=20)


def test_a_group_that_the_class_does_not_have_is_refused_where_the_actor_is_made() -> None:
    with pytest.raises(ValueError, match="'compute'.*none"):
        ray.remote(Grouped).remote()


def test_groups_of_async_actors_have_loops_of_their_own() -> None:
    @ray.remote(concurrency_groups={"io": 2, "slow": 1})
    class Async:
        def __init__(self) -> None:
            self.gate = threading.Event()
            self.now = self.most = 0

        @ray.method(concurrency_group="slow")
        async def block(self) -> bool:
            # What no async method should do: it holds up its own group alone.
            return self.gate.wait(timeout=20)

        @ray.method(concurrency_group="io")
        async def step(self) -> int:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.01)
            self.now -= 1
            return self.most

        async def open(self) -> None:
            self.gate.set()

    actor = Async.remote()
    blocked = actor.block.remote()
    assert max(ray.get([actor.step.remote() for _ in range(10)], timeout=20)) == 2
    ray.get(actor.open.remote(), timeout=20)
    assert ray.get(blocked, timeout=20)


def test_pending_calls_are_limited(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    @ray.remote(max_pending_calls=3)
    class Busy:
        def wait(self, value: object) -> object:
            while not gate.exists():
                time.sleep(0.005)
            return value

    busy = Busy.remote()
    calls = [busy.wait.remote(number) for number in range(3)]
    with pytest.raises(PendingCallsLimitExceeded, match="max_pending_calls"):
        busy.wait.remote(0)
    with pytest.raises(PendingCallsLimitExceeded):
        busy.wait.remote(bytes(1 << 20))
    gate.touch()
    assert ray.get(calls, timeout=20) == [0, 1, 2]
    assert ray.get(busy.wait.remote(0), timeout=20) == 0


class Journal:
    def __init__(self) -> None:
        self.entries: list[object] = []

    def add(self, entry: object) -> None:
        self.entries.append(entry)

    def read(self) -> list[object]:
        return list(self.entries)


@pytest.mark.parametrize(
    ("options", "overtakes"),
    [
        ({}, False),
        ({"allow_out_of_order_execution": True}, True),
        ({"max_concurrency": 2}, True),
    ],
)
def test_who_may_overtake_a_call_that_waits_for_its_arguments(tmp_path, options, overtakes) -> None:
    gate = tmp_path / "gate"

    @ray.remote
    def late() -> str:
        while not gate.exists():
            time.sleep(0.005)
        return "late"

    journal = ray.remote(**options)(Journal).remote() if options else ray.remote(Journal).remote()
    waiting = journal.add.remote(late.remote())
    call = journal.add.remote("early")
    ready, _ = ray.wait([call], timeout=60 if overtakes else 0.2)
    assert bool(ready) == overtakes
    gate.touch()
    ray.get([waiting, call], timeout=20)
    assert ray.get(journal.read.remote()) == (["early", "late"] if overtakes else ["late", "early"])


@pytest.mark.parametrize("options", [{"max_concurrency": 2}, {}])
def test_order_cannot_be_promised_by_all(options) -> None:
    class Async:
        async def ping(self) -> None: ...

    cls = Journal if options else Async
    with pytest.raises(ValueError, match="allow_out_of_order_execution"):
        ray.remote(allow_out_of_order_execution=False, **options)(cls).remote()


def test_calls_have_names_and_numbers_of_results() -> None:
    @ray.remote
    class Named:
        @ray.method(num_returns=2, enable_task_events=False)
        def facts(self) -> tuple[str, str]:
            context = ray.get_runtime_context()
            return context.get_task_name(), context.get_task_function_name()

    named = Named.remote()
    function = f"{__name__}.test_calls_have_names_and_numbers_of_results.<locals>.Named.facts"
    assert ray.get(named.facts.remote()) == ["Named.facts", function]
    assert ray.get(named.facts.options(name="mine").remote()) == ["mine", function]
    assert ray.get(named.facts.options(num_returns=1, name="mine").remote()) == ("mine", function)
    assert ray.get(named.facts.options(num_returns=1).options(name="both").remote()) == ("both", function)


#: What each place says, from the weakest to the strongest, and how often a call that always fails is run.
PRECEDENCE = [
    ({}, {}, {}, {}, 1),
    ({"max_task_retries": 1}, {}, {}, {}, 2),
    ({"max_task_retries": 1}, {"max_task_retries": 2}, {}, {}, 3),
    ({"max_task_retries": 1}, {"max_task_retries": 2}, {"max_task_retries": 3}, {}, 4),
    ({"max_task_retries": 1}, {"max_task_retries": 2}, {"max_task_retries": 3}, {"max_task_retries": 4}, 5),
    ({"max_task_retries": 3}, {}, {}, {"max_task_retries": 0}, 1),
    ({"max_task_retries": 3}, {"max_task_retries": 0}, {}, {}, 1),
    ({"max_task_retries": 2}, {}, {"retry_exceptions": False}, {}, 1),
    ({"max_task_retries": 2}, {}, {"retry_exceptions": [KeyError]}, {}, 1),
    ({"max_task_retries": 2}, {}, {"retry_exceptions": [KeyError]}, {"retry_exceptions": True}, 3),
    ({"max_task_retries": 2}, {}, {"retry_exceptions": True}, {"retry_exceptions": False}, 1),
    ({"max_task_retries": 2}, {}, {"retry_exceptions": True}, {"retry_exceptions": [OSError]}, 3),
]


def test_the_nearest_place_decides() -> None:
    for in_decorator, in_options, in_method, in_call, expected in PRECEDENCE:

        class Failing:
            def __init__(self) -> None:
                self.runs = 0

            @ray.method(**{"retry_exceptions": True, **in_method})
            def fail(self) -> None:
                self.runs += 1
                raise OSError("always")

            def count(self) -> int:
                return self.runs

        decorated = ray.remote(num_cpus=0, **in_decorator)(Failing)
        failing = decorated.options(**in_options).remote()
        with pytest.raises(OSError):
            ray.get(failing.fail.options(**in_call).remote(), timeout=20)
        case = (in_decorator, in_options, in_method, in_call)
        assert ray.get(failing.count.remote(), timeout=20) == expected, case


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"max_task_retries": -2}, ValueError),
        ({"retry_exceptions": "yes"}, TypeError),
        ({"concurrency_group": 3}, TypeError),
        ({"num_cpus": 1}, TypeError),
    ],
)
def test_what_a_call_may_not_say(given, error) -> None:
    journal = ray.remote(Journal).remote()
    with pytest.raises(error):
        journal.add.options(**given)
    with pytest.raises((error, AssertionError)):
        ray.method(**given)


def test_a_handle_brings_its_options_along(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    @ray.remote(max_pending_calls=1, max_task_retries=1, concurrency_groups={"io": 1})
    class Flaky:
        def __init__(self) -> None:
            self.runs = 0

        @ray.method(retry_exceptions=True, concurrency_group="io")
        def flaky(self) -> int:
            self.runs += 1
            if self.runs < 2:
                raise OSError("once")
            while not gate.exists():
                time.sleep(0.005)
            return self.runs

    @ray.remote
    def use(box) -> tuple[int, bool]:
        first = box[0].flaky.remote()
        try:
            box[0].flaky.remote()
            is_limited = False
        except PendingCallsLimitExceeded:
            is_limited = True
        gate.touch()
        return ray.get(first), is_limited

    assert ray.get(use.remote([Flaky.remote()]), timeout=20) == (2, True)


class Shadowed:
    """Attributes named as the methods are."""

    def __init__(self) -> None:
        self.value = self.items = self.shared = 7

    def value(self) -> str:  # type: ignore[no-redef]
        return f"method beside {self.__dict__['value']}"

    def items(self):
        yield from range(self.__dict__["items"])

    @staticmethod
    def shared() -> str:  # type: ignore[no-redef]
        return "static"


class ShadowedAsync:
    def __init__(self) -> None:
        self.value = self.items = 3

    async def value(self) -> str:  # type: ignore[no-redef]
        return f"method beside {self.__dict__['value']}"

    async def items(self):
        for number in range(self.__dict__["items"]):
            yield number


@pytest.mark.parametrize(("kind", "options"), [(Shadowed, {}), (Shadowed, {"max_concurrency": 2}), (ShadowedAsync, {})])
def test_a_method_is_the_class_s_whatever_attributes_an_object_has(kind, options) -> None:
    actor = ray.remote(**{"num_cpus": 0, **options})(kind).remote()
    count = 3 if kind is ShadowedAsync else 7
    assert ray.get(actor.value.remote(), timeout=60) == f"method beside {count}"
    assert [ray.get(item) for item in actor.items.remote()] == list(range(count))
    if kind is Shadowed:
        assert ray.get(actor.shared.remote(), timeout=60) == "static"
