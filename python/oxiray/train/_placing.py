"""Waiting for a place, and saying what is waited for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from oxiray import _core
from oxiray.train._errors import InsufficientClusterResourcesError
from oxiray.train._scaling import ScalingConfig
from oxiray.util._explain import explain
from oxiray.util.placement_group import PlacementGroup

#: What is not placed by then is explained; infeasible groups fail. In seconds.
_FIRST_WORD_S = 5.0
#: Between two words on a group that still waits, in seconds.
_WORDS_EVERY_S = 60.0
#: How many reasons of the autoscaler are said at once.
_LINES_MAX = 3
#: Rules of `explain` that no waiting changes, as long as no machine joins.
_NEVER = {"dead", "affinity", "labels", "missing", "too_small", "together"}


def await_placement(placement: PlacementGroup, what: str, scaling: ScalingConfig, say: Callable[[str], None]) -> None:
    """Returns when `placement` has its place. Says what it waits for; raises where that can never be."""
    begun = time.monotonic()
    wait_s = min(_FIRST_WORD_S, _start_timeout_s())
    while not placement.wait(wait_s):
        waited = time.monotonic() - begun
        text, is_never, none_comes = why(placement, what, waited)
        if is_never:
            text += f". No machine of this cluster could ever hold them{none_comes}"
            may_grow = cluster_may_grow(scaling, none_comes)
            if not may_grow and waited + 0.1 >= _start_timeout_s():
                raise InsufficientClusterResourcesError(f"{text}: ask for less in ScalingConfig, or add machines")
            text += ": waiting for machines to join" if may_grow else ""
        say(f"{text}{_autoscaler_says()}")
        wait_s = _WORDS_EVERY_S


def why(placement: PlacementGroup, what: str, waited_s: float) -> tuple[str, bool, str]:
    """Why it has no place, machine by machine, whether none of them could ever hold it, and why no autoscaler brings one."""
    reason = explain(placement)
    lines = [f"{node['address']}: {node['why']}" for node in reason["nodes"] if node["why"]]
    told = "; ".join([reason["reason"].partition(": ")[2] or reason["reason"], *lines])
    is_never = all(node["rule"] in _NEVER for node in reason["nodes"])
    return f"{what} are not placed after {waited_s:.0f} s: {told}", is_never, reason.get("never", "")


def cluster_may_grow(scaling: ScalingConfig, none_comes: str) -> bool:
    """Whether machines are expected to join, so that a group which none could hold now waits for them.

    The one place that decides it: an elastic group says so itself, and an autoscaler unless it could bring none that
    would do.
    """
    return scaling.elasticity_enabled or (_autoscaler() is not None and not none_comes)


def _autoscaler() -> dict[str, Any] | None:
    """What the cluster's autoscaler says of itself; None without one."""
    told: dict[str, Any] | None = _core.cluster().get("autoscaler")
    return told


def _autoscaler_says() -> str:
    """Whom the autoscaler leaves waiting, and why it brings no machines: in words to add to a line, or none."""
    told = _autoscaler() or {}
    left = [*filter(None, [told.get("trouble")]), *told.get("unmet", [])]
    more = f", and {len(left) - _LINES_MAX} more" if len(left) > _LINES_MAX else ""
    return f". The autoscaler: {'; '.join(left[:_LINES_MAX])}{more}" if left else ""


def _start_timeout_s() -> float:
    return float(os.environ.get("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", _FIRST_WORD_S))
