"""Gauges over time, as Ray Serve's autoscaler adds them up: lists of points with `timestamp` (seconds) and `value`.

A gauge keeps its value until its next point.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Any


def time_weighted_average_cython(
    step_series: Sequence[Any], window_start: float, window_end: float, last_window_s: float
) -> float | None:
    """The average over the window, in seconds, whose ends may be minus infinity: the first point, and `last_window_s` after
    the last one. A gauge is 0 before its first point. None where there is nothing to average.
    """
    if not step_series:
        return None
    start = step_series[0].timestamp if window_start == -math.inf else window_start
    end = step_series[-1].timestamp + last_window_s if window_end == -math.inf else window_end
    if end <= start:
        return None
    total, value, since = 0.0, 0.0, start
    for point in step_series:
        if point.timestamp >= end:
            break
        if point.timestamp > start:
            total += value * (point.timestamp - since)
            since = point.timestamp
        value = point.value
    return (total + value * (end - since)) / (end - start)


def merge_instantaneous_total_cython(replicas_timeseries: Sequence[Sequence[Any]]) -> list[tuple[float, float]]:
    """The sum of all gauges wherever one of them changes: times are rounded to 10 ms, and of several at one the last stays.

    The points of a gauge that is the only one with any are returned as they are.
    """
    active = [series for series in replicas_timeseries if series]
    if len(active) == 1:
        return [(point.timestamp, point.value) for point in active[0]]
    values = [0.0] * len(active)
    total, merged = 0.0, []
    points = [[(point.timestamp, gauge, point.value) for point in series] for gauge, series in enumerate(active)]
    for timestamp, gauge, value in heapq.merge(*points):
        if value == values[gauge]:
            continue
        total += value - values[gauge]
        values[gauge] = value
        at = math.floor(timestamp * 100 + 0.5) / 100
        if merged and merged[-1][0] == at:
            merged[-1] = (at, total)
        else:
            merged.append((at, total))
    return merged
