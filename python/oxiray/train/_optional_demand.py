"""The optional demand of an elastic group: the workers that it may have besides those that it has or waits for.

It is published to the cluster's autoscaler. Nobody waits for it: the group uses machines that start for it when it next
looks for room, and nothing is reserved.

Invariants:
1. It is kept under the job's identifier, where the head forgets it with the job, and so is gone with a killed driver.
"""

from __future__ import annotations

import json
import uuid

from oxiray import _core, _slices, _strategies
from oxiray.experimental.internal_kv import _internal_kv_del, _internal_kv_put
from oxiray.runtime_context import get_runtime_context
from oxiray.train._scaling import ScalingConfig

_NAMESPACE = b"autoscaler"


class OptionalDemand:
    """The optional demand of one run. A group that is not elastic has none."""

    def __init__(self, scaling: ScalingConfig, run: str) -> None:
        self._scaling = scaling
        self._who = f"more workers of run `{run}`"
        self._key = ""
        self._published: int | None = None

    def publish(self, size: int) -> None:
        """Publishes that the group has, or waits for, so many workers: the others that it may have are its optional demand."""
        if not self._scaling.elasticity_enabled or size == self._published:
            return
        self._key = self._key or f"optional/{get_runtime_context().get_job_id()}/{uuid.uuid4().hex}"
        demands = _core.encode_demands("[]", json.dumps(self._rows(size)))
        _internal_kv_put(self._key, demands, namespace=_NAMESPACE)
        self._published = size

    def withdraw(self) -> None:
        """Withdraws the demand."""
        if self._published is not None and _core.is_connected():
            _internal_kv_del(self._key, namespace=_NAMESPACE)
            self._published = None

    def _rows(self, size: int) -> list[dict[str, object]]:
        scaling = self._scaling
        if scaling.slice is not None:
            slices = (scaling.max_workers - size) // scaling.workers_per_slice
            return [self._row({scaling.slice.head: 1}, {_slices.TOPOLOGY: scaling.slice.topology}, slices)] if slices else []
        needs = scaling._resources_per_worker_not_none
        selectors = scaling.selectors(scaling.max_workers)
        if selectors is None or not isinstance(scaling.label_selector, list):
            missing = scaling.max_workers - size
            return [self._row(needs, selectors[0] if selectors else {}, missing)] if needs and missing else []
        return [self._row(needs, selector, 1) for selector in selectors[size:]]

    def _row(self, resources: dict[str, float], selector: dict[str, str], count: int) -> dict[str, object]:
        amounts = {name: float(amount) for name, amount in resources.items()}
        labels = [_strategies.conditions(selector)] if selector else []
        return {"who": self._who, "count": count, "resources": amounts, "labels": labels}
