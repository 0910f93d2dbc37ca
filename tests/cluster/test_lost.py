"""What becomes of large objects when words cross, streams break and nodes die."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster, Node

from nodes import three_nodes
from watching import stop, stopped, wait_until

MIB = 1 << 20
#: Far longer than a process takes to say what it has to say: whoever is paused misses the order in which it came.
PAUSE_S = 0.4


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """The process stands still meanwhile, and a moment longer."""
    with stopped(pid):
        yield
        time.sleep(PAUSE_S)


def streams_of(daemon: int, head: int) -> Iterator[tuple[socket.socket, bool]]:
    """The streams of a member's daemon whose other end its head made, each with whether it is the one to the head.

    The daemon goes on meanwhile: a descriptor that it closes before it is looked at was none of those.
    """
    pidfd_getfd = 438
    process = os.pidfd_open(daemon)
    for number in os.listdir(f"/proc/{daemon}/fd"):
        descriptor = ctypes.CDLL(None, use_errno=True).syscall(pidfd_getfd, process, int(number), 0)
        if descriptor < 0:
            assert ctypes.get_errno() == errno.EBADF, os.strerror(ctypes.get_errno())
            continue
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            continue
        with socket.socket(fileno=descriptor) as stream:
            if stream.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                continue
            maker = int.from_bytes(stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], "little")
            if maker == head:
                yield stream, bool(stream.getpeername())
    os.close(process)


@ray.remote(num_cpus=0)
class Process:
    def make(self, mib: int, fill: int = 1) -> bytes:
        return bytes([fill]) * (mib * MIB)

    def first_of(self, value: bytes) -> int:
        return value[0]

    def say_something(self) -> Any:
        return [ray.put(1)]

    def made_on(self, node: str) -> int:
        """Owns what a task makes on that node."""
        self.mine = on(make, node).remote(2, 9)
        return self.first_of_mine()

    def first_of_mine(self) -> int:
        value: bytes = ray.get(self.mine)
        return value[0]

    def error_of(self, references: list[Any]) -> str:
        try:
            ray.get(references[0])
        except Exception as error:
            return type(error).__name__
        return "none"


@ray.remote(num_cpus=0)
def make(mib: int, fill: int) -> bytes:
    return bytes([fill]) * (mib * MIB)


@ray.remote(num_cpus=0)
def double(value: bytes) -> bytes:
    return bytes([2 * value[0]]) * len(value)


def on(thing: Any, node: str) -> Any:
    return thing.options(resources={node: 0.1})


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Node]]:
    with three_nodes() as nodes:
        yield nodes


def test_a_reader_may_ask_before_the_head_heard_of_the_writer(nodes: list[Node]) -> None:
    maker, reader = on(Process, "first").remote(), on(Process, "second").remote()
    ray.get([maker.first_of.remote(b"1"), reader.first_of.remote(b"1")])
    with paused(nodes[0].pid):
        # The stream of the reader's node has something for the head first, and is read first.
        said = reader.say_something.remote()
        ray.wait([said], timeout=10)
        made = maker.make.remote(1, 7)
        ray.wait([made], timeout=10)
        read = reader.first_of.remote(made)
    assert ray.get(read, timeout=60) == 7


def test_a_stream_between_nodes_that_breaks_is_made_again(nodes: list[Node]) -> None:
    maker, reader = on(Process, "first").remote(), on(Process, "second").remote()
    for fill in range(1, 4):
        assert ray.get(reader.first_of.remote(maker.make.remote(3, fill)), timeout=60) == fill
        broken = 0
        for stream, is_to_head in streams_of(nodes[2].pid, nodes[0].pid):
            if not is_to_head:
                stream.shutdown(socket.SHUT_RDWR)
                broken += 1
        assert broken > 0
        assert ray.get(reader.first_of.remote(maker.make.remote(3, 2 * fill)), timeout=60) == 2 * fill


def test_objects_on_members_are_freed_for_all(nodes: list[Node]) -> None:
    maker, reader = on(Process, "first").remote(), on(Process, "second").remote()
    by_actor, by_task = maker.make.remote(2, 5), on(make, "second").remote(2, 6)
    assert ray.get([reader.first_of.remote(one) for one in (by_actor, by_task)]) == [5, 6]
    ray.internal.free([by_actor, by_task])
    for freed in (by_actor, by_task):
        with pytest.raises(ray.exceptions.ObjectFreedError):
            ray.get(freed, timeout=60)
        for process in (maker, reader):
            assert ray.get(process.error_of.remote([freed]), timeout=60) == "ObjectFreedError"


def test_what_a_dead_node_had_is_made_again_for_readers_on_another() -> None:
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1}, connect=True)
    try:
        cluster.add_node(num_cpus=1, resources={"stays": 4})
        reader = on(Process, "stays").remote()
        dying = cluster.add_node(num_cpus=1, resources={"there": 4})
        once = on(make, "there").remote(2, 4)
        twice = on(double, "there").remote(once)
        for_others = on(make, "there").remote(2, 7)
        actor = on(Process, "there").remote()
        by_actor = actor.make.remote(2)
        assert ray.get(reader.made_on.remote("there"), timeout=60) == 9
        ray.wait([once, twice, for_others, by_actor], num_returns=4, timeout=60, fetch_local=False)
        inside = ray.put([for_others])
        cluster.remove_node(dying, allow_graceful=False)
        cluster.add_node(num_cpus=1, resources={"there": 4})
        # One whose argument is lost as well, one that the reader itself owns, one that it hears of within a value.
        assert ray.get(reader.first_of.remote(twice), timeout=60) == 8
        assert ray.get(reader.first_of_mine.remote(), timeout=60) == 9
        assert ray.get(reader.error_of.remote(ray.get(inside)), timeout=60) == "none"
        lost = ray.get(reader.error_of.remote([by_actor]), timeout=60)
        assert lost == "ObjectReconstructionFailedError"
    finally:
        cluster.shutdown()


def test_a_member_that_lost_its_stream_and_does_not_end_is_ended() -> None:
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1}, connect=True)
    try:
        assert cluster.head_node is not None
        node = cluster.add_node(num_cpus=1, resources={"there": 4})
        process = on(Process, "there").remote()
        assert ray.get(process.first_of.remote(b"1"), timeout=60) == 49
        stop(node.pid)
        for stream, is_to_head in streams_of(node.pid, cluster.head_node.pid):
            if is_to_head:
                stream.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: not node.is_alive(), timeout=60)
        with pytest.raises(ray.exceptions.ActorDiedError):
            ray.get(process.first_of.remote(b"1"), timeout=60)
        assert [one["Alive"] for one in ray.nodes() if one["NodeID"] == node.node_id] == [False]
    finally:
        cluster.shutdown()


@ray.remote(num_cpus=0)
def total(array: bytes) -> bytes:
    """A large value that is made from another."""
    return bytes([sum(array[:100]) % 256]) * (2 * MIB)


@pytest.mark.parametrize("source", ["put", "by value", "without retries"])
def test_what_cannot_be_made_again_is_kept_for_what_is_made_from_it(source: str) -> None:
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "resources": {"stays": 4}}, connect=True)
    try:
        dying = cluster.add_node(num_cpus=1, resources={"there": 4})
        value = bytes([1]) * (2 * MIB)
        argument: Any = {
            "put": lambda: ray.put(value),
            "by value": lambda: value,
            "without retries": lambda: make.options(resources={"stays": 0.1}, max_retries=0).remote(2, 1),
        }[source]()
        made = on(total, "there").remote(argument)
        ray.wait([made], timeout=60, fetch_local=False)
        del argument
        cluster.remove_node(dying, allow_graceful=False)
        cluster.add_node(num_cpus=1, resources={"there": 4})
        assert ray.get(made, timeout=60)[0] == 100
    finally:
        cluster.shutdown()
