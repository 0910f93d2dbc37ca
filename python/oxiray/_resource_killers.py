"""Actors that kill parts of a cluster while a test runs, as Ray's tests of faults start them.

Invariants:
1. The node that a killer runs on, and the last node besides it, are never killed.
2. What `get_killed_nodes` tells of is dead by then, as the head sees it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

from oxiray import _api, _session
from oxiray.exceptions import RayError, RayTaskError, TaskUnschedulableError
from oxiray.runtime_context import get_runtime_context
from oxiray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

logger = logging.getLogger("ray")

#: How long the head may take to see that a node is dead, in seconds: longer than a node may be silent.
_SEEN_LIMIT_S = 60.0
#: How often the cluster is looked at while there is nothing to kill yet, or a death is waited for, in seconds.
_LOOK_S = 0.2


class ResourceKillerActor:
    """Kills something every `kill_interval_s` seconds, after `kill_delay_s`, until `max_to_kill` are dead or it is stopped.

    A class that stems from this one says what there is to kill (`_find_resources_to_kill`) and kills it (`_kill_resource`).
    `kill_filter_fn` returns a function that is asked of each candidate whether it may be killed.
    """

    #: Whether what was found is killed at once, and not at a random moment of the interval.
    kill_immediately_after_found = False

    def __init__(
        self,
        head_node_id: str,
        kill_interval_s: float = 60,
        kill_delay_s: float = 0,
        max_to_kill: int | None = 2,
        batch_size_to_kill: int = 1,
        kill_filter_fn: Callable[[], Callable[[Any], bool]] | None = None,
    ) -> None:
        self.head_node_id = head_node_id
        self.kill_interval_s = kill_interval_s
        self.kill_delay_s = kill_delay_s
        self.max_to_kill = max_to_kill
        self.batch_size_to_kill = batch_size_to_kill
        self.kill_filter_fn = kill_filter_fn
        self.is_running = False
        self.killed: set[Any] = set()
        self._ended = asyncio.Event()

    def ready(self) -> None:
        """Returns when the actor is there."""

    async def run(self) -> None:
        """Kills until there were enough, or until `stop_run`."""
        self.is_running = True
        try:
            await asyncio.sleep(self.kill_delay_s)
            while self.is_running:
                until = time.monotonic() + self.kill_interval_s
                found = await self._find_resources_to_kill()
                if not self.kill_immediately_after_found:
                    await asyncio.sleep(random.random() * self.kill_interval_s)
                if self.is_running:
                    await self._kill_all(found)
                if self.max_to_kill is not None and len(self.killed) >= self.max_to_kill:
                    break
                await asyncio.sleep(max(0.0, until - time.monotonic()))
        finally:
            self.is_running = False
            self._ended.set()

    async def stop_run(self) -> bool:
        """Has nothing more be killed; whether it was killing until now."""
        was_running, self.is_running = self.is_running, False
        return was_running

    async def get_killed_nodes(self) -> set[Any]:
        """What was killed, when no more will be."""
        await self._ended.wait()
        return set(self.killed)

    async def _kill_all(self, found: list[Any]) -> None:
        results = await asyncio.gather(*(self._kill_resource(*one) for one in found), return_exceptions=True)
        for one, result in zip(found, results, strict=True):
            if isinstance(result, BaseException):
                logger.error("%s was not killed, and may be tried again: %s", one, result)
            elif result:
                self.killed.add(one)

    async def _find_resources_to_kill(self) -> list[Any]:
        raise NotImplementedError(f"{type(self).__name__} has to say what there is to kill: define _find_resources_to_kill()")

    async def _kill_resource(self, *resource: Hashable) -> bool:
        raise NotImplementedError(f"{type(self).__name__} has to kill what it found: define _kill_resource()")


class NodeKillerBase(ResourceKillerActor):
    """Finds nodes to kill: those that live, but for the one that it runs on and the last one besides."""

    async def _find_resources_to_kill(self) -> list[Any]:
        while self.is_running:
            others = [node for node in _api.nodes() if node["Alive"] and node["NodeID"] != self.head_node_id]
            # One of them stays for what the killed ones ran.
            if len(others) > self.batch_size_to_kill:
                may_be_killed = self.kill_filter_fn() if self.kill_filter_fn is not None else lambda node: True
                chosen = [node for node in others if may_be_killed(node)][: self.batch_size_to_kill]
                if chosen:
                    return [(node["NodeID"], node["NodeManagerAddress"], node["NodeManagerPort"]) for node in chosen]
            await asyncio.sleep(_LOOK_S)
        return []


@_api.remote(num_cpus=0)
class RayletKiller(NodeKillerBase):
    """Kills the daemons of nodes, which take their workers with them, without a word to them or to the head.

    It needs no processor, so that it takes none from what is tested.
    """

    async def _kill_resource(self, *resource: Hashable) -> bool:
        node_id = str(resource[0])
        there = NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)
        died: RayError | None = None
        try:
            await _kill_own_daemon.options(scheduling_strategy=there).remote()
        except (RayTaskError, TaskUnschedulableError):
            raise
        except RayError as error:
            died = error  # with its node, as it was to
        until = time.monotonic() + _SEEN_LIMIT_S
        while any(node["NodeID"] == node_id and node["Alive"] for node in _api.nodes()):
            if time.monotonic() > until:
                raise TimeoutError(f"node {node_id} is still seen as alive {_SEEN_LIMIT_S:.0f} s after its daemon was to be killed") from died
            await asyncio.sleep(_LOOK_S)
        return True


@_api.remote(num_cpus=0, max_retries=0)
def _kill_own_daemon() -> None:
    """Kills the daemon of the node that this runs on; only its owner's processes may be killed, so a worker may."""
    session = Path(_session.address_info()["session_dir"])
    os.kill(json.loads((session / "session.json").read_text())["pid"], signal.SIGKILL)


def get_and_run_resource_killer(
    resource_killer_cls: Any,
    kill_interval_s: float,
    namespace: str | None = None,
    lifetime: str | None = None,
    no_start: bool = False,
    max_to_kill: int | None = 2,
    batch_size_to_kill: int = 1,
    kill_delay_s: float = 0,
    kill_filter_fn: Callable[[], Callable[[Any], bool]] | None = None,
) -> Any:
    """Starts a killer, named `ResourceKiller`, on the node of this program; with `no_start` its `run` is left to the caller.

    Raises `RuntimeError` without a connection.
    """
    if not _session.is_initialized():
        raise RuntimeError("get_and_run_resource_killer() starts an actor in a cluster: call ray.init() first")
    here = get_runtime_context().get_node_id()
    killer = resource_killer_cls.options(
        scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=here, soft=False),
        namespace=namespace,
        name="ResourceKiller",
        lifetime=lifetime,
    ).remote(
        here,
        kill_interval_s=kill_interval_s,
        kill_delay_s=kill_delay_s,
        max_to_kill=max_to_kill,
        batch_size_to_kill=batch_size_to_kill,
        kill_filter_fn=kill_filter_fn,
    )
    _api.get(killer.ready.remote())
    if not no_start:
        killer.run.remote()
    return killer
