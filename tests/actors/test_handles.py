"""Handles in several processes: an actor lives as long as one of them, whoever made it, and no longer."""

from __future__ import annotations

import functools
import os
import pickle
import signal
import time
from pathlib import Path

import pytest
import ray
from ray.exceptions import ActorDiedError
from watching import alive, wait_until

pytestmark = pytest.mark.usefixtures("cluster")


@ray.remote(num_cpus=0)
class Member:
    def pid(self) -> int:
        return os.getpid()

    def add(self, number: int = 1) -> int:
        self.total = getattr(self, "total", 0) + number
        return self.total

    def write(self, path: Path) -> None:
        time.sleep(0.2)
        path.touch()


@ray.remote(num_cpus=0)
class Keeper:
    """Keeps whatever it is given."""

    def __init__(self) -> None:
        self.kept: list[object] = []

    def pid(self) -> int:
        return os.getpid()

    def keep(self, box: object) -> None:
        self.kept.append(box)

    def call(self) -> int:
        return ray.get(self.kept[0][0].add.remote())  # type: ignore[index]

    def make(self) -> list[object]:
        self.made = Member.remote()
        return [self.made, ray.get(self.made.pid.remote())]

    def drop(self) -> None:
        self.kept.clear()
        self.made = None


def gone_with_a_reason(member) -> str:
    with pytest.raises(ActorDiedError) as caught:
        ray.get(member.add.remote(), timeout=20)
    return str(caught.value)


def test_the_last_handle_in_another_process_keeps_the_actor() -> None:
    keeper, member = Keeper.remote(), Member.remote()
    pid = ray.get(member.pid.remote())
    ray.get(keeper.keep.remote([member]))
    del member
    for expected in range(1, 4):
        assert ray.get(keeper.call.remote(), timeout=20) == expected
    assert alive(pid)
    ray.get(keeper.drop.remote())
    wait_until(lambda: not alive(pid))


def test_a_borrower_may_keep_what_it_was_given_directly() -> None:
    @ray.remote
    def use(member) -> int:
        return ray.get(member.add.remote())

    member = Member.remote()
    pid = ray.get(member.pid.remote())
    call = use.remote(member)
    del member
    assert ray.get(call, timeout=20) == 1
    wait_until(lambda: not alive(pid))


def test_a_handle_outlives_the_scope_of_its_maker() -> None:
    keeper = Keeper.remote()
    member, pid = ray.get(keeper.make.remote())
    ray.get(keeper.drop.remote())
    assert ray.get(member.add.remote(), timeout=20) == 1
    del member
    wait_until(lambda: not alive(pid))


def test_a_handle_inside_a_kept_value_counts() -> None:
    member = Member.remote()
    pid = ray.get(member.pid.remote())
    box = ray.put({"member": member})
    del member
    assert ray.get(ray.get(box)["member"].add.remote(), timeout=20) == 1

    @ray.remote
    def use(value) -> int:
        return ray.get(value["member"].add.remote())

    assert ray.get(use.remote(box), timeout=20) == 2
    assert alive(pid)
    del box
    wait_until(lambda: not alive(pid))


def test_a_handle_in_a_result_that_nobody_reads_counts() -> None:
    @ray.remote
    def make(number: int) -> list[object]:
        if number:
            return [ray.get(make.remote(number - 1))[0]]
        # The task's worker owns the actor, and works on for others.
        return [Member.options(name="made").remote()]

    result = make.remote(1)
    ray.wait([result], timeout=20)
    found = ray.get_actor("made")
    pid = ray.get(found.pid.remote())
    assert ray.get(ray.get(result)[0].add.remote()) == 1 and alive(pid)
    del result
    wait_until(lambda: not alive(pid))


def test_queued_calls_are_done_first(tmp_path) -> None:
    member, keeper = Member.remote(), Keeper.remote()
    pid = ray.get(member.pid.remote())
    paths = [tmp_path / str(number) for number in range(3)]
    for path in paths:
        member.write.remote(path)
    del member
    wait_until(lambda: not alive(pid))
    assert all(path.exists() for path in paths)
    assert ray.get(keeper.pid.remote()) > 0


def test_the_death_of_a_borrower_gives_its_handles_back() -> None:
    keeper, member = Keeper.remote(), Member.remote()
    pid = ray.get(member.pid.remote())
    ray.get(keeper.keep.remote([member]))
    keeper_pid = ray.get(keeper.pid.remote())
    del member
    assert ray.get(keeper.call.remote(), timeout=20) == 1
    os.kill(keeper_pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid))


def test_the_death_of_the_owner_ends_its_actors_whatever_restarts_they_have() -> None:
    @ray.remote(num_cpus=0)
    class Owner:
        def make(self) -> list[object]:
            self.bound = Member.options(max_restarts=-1, max_task_retries=-1).remote()
            self.detached = Member.options(lifetime="detached", name="orphan", max_restarts=1).remote()
            return [self.bound, *ray.get([self.bound.pid.remote(), self.detached.pid.remote()]), os.getpid()]

    owner = Owner.remote()
    bound, bound_pid, detached_pid, owner_pid = ray.get(owner.make.remote())
    os.kill(owner_pid, signal.SIGKILL)
    wait_until(lambda: not alive(bound_pid))
    assert "owner has died" in gone_with_a_reason(bound)
    orphan = ray.get_actor("orphan")
    assert ray.get(orphan.pid.remote()) == detached_pid
    os.kill(detached_pid, signal.SIGKILL)
    wait_until(lambda: not alive(detached_pid))
    assert ray.get(orphan.add.options(max_task_retries=20).remote(), timeout=20) == 1, "it restarts without its creator"
    ray.kill(orphan)


def test_handles_found_by_name_do_not_count() -> None:
    member = Member.options(name="known").remote()
    pid = ray.get(member.pid.remote())
    found = ray.get_actor("known")
    again = Member.options(name="known", get_if_exists=True).remote()
    assert ray.get([found.add.remote(), again.add.remote()]) == [1, 2]
    del member
    wait_until(lambda: not alive(pid))
    assert "all references to the actor were removed" in gone_with_a_reason(found)
    with pytest.raises(ValueError, match="known"):
        ray.get_actor("known")


def test_an_actors_own_handle_does_not_count() -> None:
    @ray.remote(num_cpus=0)
    class Selfish:
        def hold_itself(self) -> int:
            self.me = ray.get_runtime_context().current_actor
            return os.getpid()

    selfish = Selfish.remote()
    pid = ray.get(selfish.hold_itself.remote())
    del selfish
    wait_until(lambda: not alive(pid))


def test_a_copy_out_of_band_keeps_the_actor() -> None:
    member = Member.remote()
    copy = pickle.dumps(member)
    hexadecimal = member._actor_id.hex()
    del member
    again = pickle.loads(copy)
    assert again._actor_id.hex() == hexadecimal and ray.get(again.add.remote(), timeout=20) == 1
    del again
    assert ray.get(pickle.loads(copy).add.remote(), timeout=20) == 2


def test_a_handle_in_a_closure_keeps_the_actor() -> None:
    member = Member.remote()

    @ray.remote
    def use() -> int:
        return ray.get(member.add.remote())

    assert ray.get([use.remote(), use.remote()], timeout=20) in ([1, 2], [2, 1])


def test_a_handle_may_travel_before_its_actor_is_made(tmp_path) -> None:
    gate = tmp_path / "gate"

    @ray.remote
    def late() -> int:
        while not gate.exists():
            time.sleep(0.005)
        return 5

    @ray.remote(num_cpus=0)
    class Late:
        def __init__(self, start: int) -> None:
            self.start = start

        def get(self) -> int:
            return self.start

    @ray.remote(num_cpus=0)
    def use(box) -> int:
        return ray.get(box[0].get.remote())

    actor = Late.options(name="late").remote(late.remote())
    call = use.remote([actor])
    ready, _ = ray.wait([call], timeout=0.3)
    assert not ready and ray.get_actor("late") == actor
    gate.touch()
    assert ray.get(call, timeout=20) == 5


def test_an_actor_that_waits_for_resources_is_cancelled_with_its_last_handle() -> None:
    def waiting() -> list[str]:
        
        from oxiray import _core

        return [one["name"] for one in _core.cluster()["waiting"]]

    holder = Member.options(resources={"token": 2}).remote()
    ray.get(holder.pid.remote())
    second = Member.options(resources={"token": 1}).remote()
    wait_until(lambda: waiting() == ["Member"])
    del second
    wait_until(lambda: waiting() == [])
    del holder
    wait_until(lambda: ray.available_resources().get("token") == 2)


def test_each_caller_reads_its_own_writes() -> None:
    @ray.remote(num_cpus=0)
    class Register:
        def __init__(self) -> None:
            self.values: dict[int, list[int]] = {}

        def write(self, who: int, value: int) -> None:
            self.values.setdefault(who, []).append(value)

        def read(self, who: int) -> list[int]:
            return self.values.get(who, [])

    @ray.remote
    def caller(register, who: int) -> bool:
        for value in range(50):
            register.write.remote(who, value)
            if value % 10 == 0 and ray.get(register.read.remote(who)) != list(range(value + 1)):
                return False
        return ray.get(register.read.remote(who)) == list(range(50))

    register = Register.remote()
    assert ray.get([caller.remote(register, who) for who in range(4)], timeout=30) == [True] * 4


def test_many_handles_leave_nothing_behind() -> None:
    keeper = Keeper.remote()
    members = [Member.remote() for _ in range(5)]
    pids = ray.get([member.pid.remote() for member in members])
    ray.get([keeper.keep.remote([members, ray.put(members)]) for _ in range(20)], timeout=30)
    del members
    assert ray.get(keeper.pid.remote()) and all(map(alive, pids))
    ray.get(keeper.drop.remote())
    wait_until(lambda: not any(map(alive, pids)))


def _bound(member):
    return member.add


def _in_partial(member):
    return functools.partial(member.add.remote, 1)


def _in_closure(member):
    method = member.add
    return lambda *numbers: method.remote(*numbers)


@pytest.mark.parametrize("made_of", [_bound, _in_partial, _in_closure])
@pytest.mark.parametrize("way", ["argument", "put", "container", "result"])
def test_a_method_travels_and_keeps_its_actor(made_of, way) -> None:
    @ray.remote
    def use(box) -> list[int]:
        (method,) = box if isinstance(box, list) else [box]
        call = getattr(method, "remote", method)
        return ray.get([call(), call()])

    @ray.remote
    def hand_back(box):
        return box

    member = Member.remote()
    pid = ray.get(member.pid.remote())
    method = made_of(member)
    del member
    if way == "argument":
        given = method
    elif way == "put":
        given = ray.put(method)
    else:
        given = [method] if way == "container" else ray.get(hand_back.remote([method]))
    del method
    assert ray.get(use.remote(given), timeout=60) == [1, 2]
    # Nothing but what was given keeps the actor.
    assert ray.get(use.remote(given), timeout=60) == [3, 4]
    del given
    wait_until(lambda: not alive(pid))


def test_a_method_that_travelled_takes_options(tmp_path) -> None:
    @ray.remote
    def use(method) -> list[int]:
        return ray.get([method.options(num_returns=1, name="mine").remote(5), method.remote(number=1)])

    member = Member.remote()
    assert ray.get(use.remote(member.add), timeout=60) == [5, 6]
    assert ray.get(use.remote(member.add.options(max_task_retries=1)), timeout=60) == [11, 12]
    assert pickle.loads(pickle.dumps(member.add)).remote is not None
