"""What an elastic group would have besides the workers that it has or waits for, told to the cluster's autoscaler.

Nobody waits for it: machines that come for it are taken when the group looks for room, and nothing is reserved.

Invariants:
1. It is kept under the job's identifier, where the head forgets it with the job, and so is gone with a killed driver.
"""

from __future__ import annotations

import json
import uuid

from oxiray import _core, _strategies
from oxiray.experimental.internal_kv import _internal_kv_del, _internal_kv_put
from oxiray.runtime_context import get_runtime_context
from oxiray.train import _slices
from oxiray.train._scaling import ScalingConfig

_NAMESPACE = b"autoscaler"


class Hopes:
    """Of one run. A group that is not elastic hopes for nothing."""

    def __init__(self, scaling: ScalingConfig, run: str) -> None:
        self._scaling = scaling
        self._who = f"more workers of run `{run}`"
        self._key = ""
        self._told: int | None = None

    def tell(self, size: int) -> None:
        """The group has, or waits for, so many workers: the others that it may have are hoped for."""
        if not self._scaling.elasticity_enabled or size == self._told:
            return
        self._key = self._key or f"hoped/{get_runtime_context().get_job_id()}/{uuid.uuid4().hex}"
        demands = _core.encode_demands("[]", json.dumps(self._rows(size)))
        _internal_kv_put(self._key, demands, namespace=_NAMESPACE)
        self._told = size

    def end(self) -> None:
        """Nothing is hoped for."""
        if self._told is not None and _core.is_connected():
            _internal_kv_del(self._key, namespace=_NAMESPACE)
            self._told = None

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
